package kafkatest

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Name returns a name that no other test has, for a topic, a group or a transactional id; it starts with the test's.
func Name(tb testing.TB) string {
	tb.Helper()
	legal := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}
	name := strings.Map(legal, tb.Name())
	const room = 200 // topics may have 249 bytes, and tests append to a name
	return name[:min(len(name), room)] + "-" + strings.ToLower(rand.Text()[:8])
}

// Client makes a client of the cluster that is closed at the end of the test.
func (c *Cluster) Client(tb testing.TB, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(c.addrs...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		tb.Fatalf("make a client: %v", err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

// Topic makes a topic of its own for a test, waits until it has leaders, and returns its name.
func (c *Cluster) Topic(tb testing.TB, partitions int32, configs map[string]string) string {
	tb.Helper()
	values := make(map[string]*string, len(configs))
	for key, value := range configs {
		values[key] = &value
	}
	topic := Name(tb)
	if _, err := createTopic(tb.Context(), c.Client(tb), topic, partitions, values); err != nil {
		tb.Fatal(err)
	}
	return topic
}
