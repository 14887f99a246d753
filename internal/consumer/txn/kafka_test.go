//go:build kafka

package txn

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
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
// announcing are there for.
func TestRing_CommitsAsFastAsTheBrokersAllow(t *testing.T) {
	const partitions = 12
	for _, brokers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d brokers", brokers), func(t *testing.T) {
			c := kafkatest.Shared(t, brokers)
			must(t, c.Warm(t.Context(), 20*time.Second))
			one := measure(t, newReal(t, c, 2), partitions, func(c *Config) { c.Slots = 1 })
			ring := measure(t, newReal(t, c, 2), partitions)
			if ring < 2*one && brokers == 1 {
				t.Errorf("a ring of 3 does %.0f cycles/s, one producer %.0f: want at least twice as many", ring, one)
			}
			if brokers == 1 {
				return
			}
			silent := measure(t, newReal(t, c, 2), partitions, func(c *Config) { c.silent = true })
			if ring < 2*silent {
				t.Errorf("announced %.0f cycles/s, not announced %.0f: want at least twice as many", ring, silent)
			}
		})
	}
}

// measure commits cycles one after another for some seconds, each of some records in every partition.
func measure(t *testing.T, b *bed, partitions int32, changes ...func(*Config)) float64 {
	t.Helper()
	b.output, b.changelog = b.output+"-wide", b.changelog+"-wide"
	b.createTopic(b.output, partitions)
	b.createTopic(b.changelog, partitions)
	w := b.worker(changes...)
	value := make([]byte, 500)
	const duration = 5 * time.Second
	var took []time.Duration
	for began := time.Now(); time.Since(began) < duration; {
		c := w.cycle(strconv.Itoa(len(took)), 0, 1, 2, 3)
		c.Records = c.Records[:0]
		for p := range partitions {
			c.Records = append(c.Records,
				&kgo.Record{Topic: b.changelog, Partition: p, Key: []byte("key"), Value: value},
				&kgo.Record{Topic: b.output, Partition: p, Value: value})
		}
		res, err := w.ring.Commit(context.WithoutCancel(t.Context()), c)
		must(t, err)
		requireOutcome(t, res, Committed, nil)
		w.apply(c, res)
		took = append(took, res.Elapsed)
	}
	slices.Sort(took)
	rate := float64(len(took)) / duration.Seconds()
	t.Logf("%d slots, announcing %t: %.0f cycles/s, p50 %s, p99 %s", w.ring.cfg.Slots, w.ring.announcing,
		rate, took[len(took)/2], took[len(took)*99/100])
	return rate
}
