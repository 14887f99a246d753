//go:build kafka

package txn

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

func newReal(t testing.TB, c *kafkatest.Cluster, version int) *bed {
	t.Helper()
	w := &wires{dial: (&net.Dialer{}).DialContext, armed: make(chan struct{}, 1)}
	return newBed(t, version, kafkatest.Name(t), w, kgo.SeedBrokers(c.Addrs()...), kgo.Dialer(w.Dial))
}

func TestRing_KeepsItsPromisesOnKafka(t *testing.T) {
	for _, cluster := range []struct {
		name    string
		version int
		start   func(t testing.TB) *kafkatest.Cluster
	}{
		{"one broker", 2, func(t testing.TB) *kafkatest.Cluster { return kafkatest.Shared(t, 1) }},
		{"three brokers", 2, func(t testing.TB) *kafkatest.Cluster { return kafkatest.Shared(t, 3) }},
		{"transaction version 1", 1, func(t testing.TB) *kafkatest.Cluster {
			return kafkatest.Private(t, kafkatest.Config{TransactionVersion: 1})
		}},
	} {
		t.Run(cluster.name, func(t *testing.T) {
			c := cluster.start(t)
			for _, tc := range core {
				t.Run(tc.name, func(t *testing.T) { tc.test(newReal(t, c, cluster.version)) })
			}
		})
	}
}

// TestRing_CommitsAsFastAsTheBrokersAllow measures back-to-back cycles over 12 + 12 partitions, and what the ring and
// announcing are there for. It says something only on a machine that does nothing else.
func TestRing_CommitsAsFastAsTheBrokersAllow(t *testing.T) {
	for _, brokers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d brokers", brokers), func(t *testing.T) {
			c := kafkatest.Shared(t, brokers)
			must(t, c.Warm(t.Context(), 20*time.Second))
			b := newReal(t, c, 2)
			ring := measure(t, b)
			if brokers == 1 {
				if one := measure(t, b, func(c *Config) { c.Slots = 1 }); ring < 2*one {
					t.Errorf("a ring of 3 does %.0f cycles/s, one producer %.0f: want at least twice as many", ring, one)
				}
				return
			}
			if silent := measure(t, b, func(c *Config) { c.silent = true }); ring < 2*silent {
				t.Errorf("announced %.0f cycles/s, not announced %.0f: want at least twice as many", ring, silent)
			}
		})
	}
}

// measure commits cycles one after another for some seconds, each of one record in every partition, and returns how
// many a second.
func measure(t *testing.T, b *bed, changes ...func(*Config)) float64 {
	t.Helper()
	const (
		partitions = 12
		duration   = 5 * time.Second
	)
	output, changelog := kafkatest.Name(t), kafkatest.Name(t)
	b.createTopic(output, partitions, 1)
	b.createTopic(changelog, partitions, 1)
	watch := stepTimes{}
	w := b.worker(append(changes, func(c *Config) { c.Changelog, c.Hooks = changelog, watch.hooks() })...)
	value := make([]byte, 500)
	var took []time.Duration
	for began := time.Now(); time.Since(began) < duration; {
		c := w.cycle(strconv.Itoa(len(took)), 0, 1, 2, 3)
		c.Records = c.Records[:0]
		for p := range int32(partitions) {
			c.Records = append(c.Records,
				&kgo.Record{Topic: changelog, Partition: p, Key: []byte("key"), Value: value},
				&kgo.Record{Topic: output, Partition: p, Value: value})
		}
		res, err := w.ring.Commit(t.Context(), c)
		must(t, err)
		requireOutcome(t, res, Committed, nil)
		w.apply(c, res)
		took = append(took, res.Elapsed)
	}
	rate := float64(len(took)) / duration.Seconds()
	t.Logf("%d slots, announcing %t: %.0f cycles/s, p50 %s, p99 %s; steps p50: %s", w.ring.cfg.Slots, w.ring.announcing,
		rate, quantile(took, 0.5), quantile(took, 0.99), watch)
	return rate
}

// stepTimes are the times of each step of the cycles.
type stepTimes map[Step][]time.Duration

func (s stepTimes) hooks() Hooks {
	var began time.Time
	return Hooks{
		Before: func(context.Context, Step) { began = time.Now() },
		After:  func(_ context.Context, step Step) { s[step] = append(s[step], time.Since(began)) },
	}
}

func (s stepTimes) String() string {
	var text strings.Builder
	for _, step := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&text, "%s %s ", step, quantile(s[step], 0.5).Round(10*time.Microsecond))
	}
	return text.String()
}

func quantile(took []time.Duration, q float64) time.Duration {
	return slices.Sorted(slices.Values(took))[int(float64(len(took)-1)*q)]
}
