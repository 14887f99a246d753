//go:build kafka

package txn

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

func newReal(tb testing.TB, c *kafkatest.Cluster, version int, consumer ...kgo.Opt) *bed {
	tb.Helper()
	w := newWires((&net.Dialer{}).DialContext)
	return newBed(tb, version, kafkatest.Name(tb), w, consumer, kgo.SeedBrokers(c.Addrs()...), kgo.Dialer(w.Dial))
}

//nolint:paralleltest // two cores are few for three brokers
func TestRing_KeepsItsPromisesOnKafka(t *testing.T) {
	for _, cluster := range []struct {
		name             string
		brokers, version int
		consumer         []kgo.Opt
	}{
		{"one broker", 1, 2, nil},
		{"one broker, group protocol consumer", 1, 2, []kgo.Opt{kgo.ServerSideBalancer()}},
		{"three brokers", 3, 2, nil},
		{"transaction version 1", 1, 1, nil},
	} {
		t.Run(cluster.name, func(t *testing.T) {
			c := clusterOf(t, cluster.brokers, cluster.version)
			for _, tc := range core {
				t.Run(tc.name, func(t *testing.T) { tc.test(newReal(t, c, cluster.version, cluster.consumer...)) })
			}
		})
	}
}

func clusterOf(tb testing.TB, brokers, version int) *kafkatest.Cluster {
	tb.Helper()
	if version == 2 {
		return kafkatest.Shared(tb, brokers)
	}
	return kafkatest.Private(tb, kafkatest.Config{Brokers: brokers, TransactionVersion: version})
}

// TestRing_CommitsAsFastAsTheBrokersAllow measures back-to-back cycles over 12 + 12 partitions, and what the ring and
// announcing are there for. The two of a pair are measured in short turns, since other work on the machine must hit
// them alike.
//
//nolint:paralleltest // it measures
func TestRing_CommitsAsFastAsTheBrokersAllow(t *testing.T) {
	for _, tc := range []struct {
		name    string
		brokers int
		worse   func(*Config)
		factor  float64
	}{
		{"a ring beats one producer", 1, func(c *Config) { c.Slots = 1 }, 2},
		{"announced partitions beat those that are not", 3, func(c *Config) { c.silent = true }, 1.2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := kafkatest.Shared(t, tc.brokers)
			must(t, c.Warm(t.Context(), 20*time.Second))
			b := newReal(t, c, 2)
			better, worse := newMeasure(b, func(*Config) {}), newMeasure(b, tc.worse)
			for range 10 {
				better.backToBack(20)
				worse.backToBack(20)
			}
			t.Logf("this: %s", better)
			t.Logf("that: %s", worse)
			if a, b := better.writing(), worse.writing(); float64(b) < tc.factor*float64(a) {
				t.Errorf("writing takes %s against %s, want it %.1f times as fast", a, b, tc.factor)
			}
		})
	}
}

// measure commits cycles of one record in every partition of two topics of its own.
type measure struct {
	*worker

	output string
	took   []time.Duration
	steps  map[Step][]time.Duration
	busy   time.Duration
}

const measurePartitions = 12

func newMeasure(b *bed, change func(*Config)) *measure {
	m := &measure{steps: map[Step][]time.Duration{}, output: kafkatest.Name(b.t)}
	changelog := kafkatest.Name(b.t)
	b.createTopic(m.output, measurePartitions, 1)
	b.createTopic(changelog, measurePartitions, 1)
	m.worker = b.worker(change, func(c *Config) {
		c.Instance, c.Changelog = changelog, changelog
		var began time.Time
		c.Hooks = Hooks{
			Before: func(context.Context, Step) { began = time.Now() },
			After:  func(_ context.Context, s Step) { m.steps[s] = append(m.steps[s], time.Since(began)) },
		}
	})
	return m
}

func (m *measure) backToBack(cycles int) {
	m.t.Helper()
	began := time.Now()
	for range cycles {
		m.cycle()
	}
	m.busy += time.Since(began)
}

func (m *measure) cycle() {
	m.t.Helper()
	c := m.worker.cycle("", 0, 1, 2, 3)
	c.Records = c.Records[:0]
	value := make([]byte, 500)
	for p := range int32(measurePartitions) {
		c.Records = append(c.Records,
			&kgo.Record{Topic: m.ring.cfg.Changelog, Partition: p, Key: []byte("key"), Value: value},
			&kgo.Record{Topic: m.output, Partition: p, Value: value})
	}
	res, err := m.ring.Commit(m.t.Context(), c)
	must(m.t, err)
	requireOutcome(m.t, res, Committed, nil)
	m.apply(c, res)
	m.took = append(m.took, res.Elapsed)
}

// writing is the time from the first request until all records are taken.
func (m *measure) writing() time.Duration {
	total := make([]time.Duration, len(m.took))
	for i := range total {
		total[i] = m.steps[StepAnnounce][i] + m.steps[StepFlush][i]
	}
	return quantile(total, 0.5)
}

func (m *measure) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d slots, announcing %t: %.0f cycles/s, p50 %s, p99 %s; p50 of steps:",
		m.ring.cfg.Slots, m.ring.announcing, float64(len(m.took))/m.busy.Seconds(), quantile(m.took, 0.5), quantile(m.took, 0.99))
	for _, step := range slices.Sorted(maps.Keys(m.steps)) {
		fmt.Fprintf(&text, " %s %s", step, quantile(m.steps[step], 0.5).Round(10*time.Microsecond))
	}
	return text.String()
}

func quantile(took []time.Duration, q float64) time.Duration {
	return slices.Sorted(slices.Values(took))[int(float64(len(took)-1)*q)]
}
