//go:build kafka

package consumer

import (
	"context"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/test/kafka/kafkatest"
	"github.com/lathe-run/lathe/test/netcut"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

func newReal(tb testing.TB, c *kafkatest.Cluster, version int) *bed {
	tb.Helper()
	w := &netcut.Wires{Through: (&net.Dialer{}).DialContext}
	return newBed(tb, kafkatest.Name(tb), version, w, kgo.SeedBrokers(c.Addrs()...), kgo.Dialer(w.Dial))
}

//nolint:paralleltest // The tests of one cluster share two cores with it.
func TestWorker_KeepsItsPromisesOnKafka(t *testing.T) {
	for _, cluster := range []struct {
		name             string
		brokers, version int
	}{
		{"one broker", 1, 2},
		{"three brokers", 3, 2},
		{"transaction version 1", 1, 1},
	} {
		t.Run(cluster.name, func(t *testing.T) {
			var c *kafkatest.Cluster
			if cluster.version == 2 {
				c = kafkatest.Shared(t, cluster.brokers)
			} else {
				c = kafkatest.Private(t, kafkatest.Config{TransactionVersion: cluster.version})
			}
			for _, tc := range core {
				t.Run(tc.name, func(t *testing.T) { tc.test(newReal(t, c, cluster.version)) })
			}
		})
	}
}

// TestWorker_SpeaksTheNextProtocolOnKafka moves partitions between members of a KIP-848 group.
//
//nolint:paralleltest // The tests of one cluster share two cores with it.
func TestWorker_SpeaksTheNextProtocolOnKafka(t *testing.T) {
	b := newReal(t, kafkatest.Shared(t, 1), 2)
	next := with(func(c *Config) { c.Protocol = ProtocolConsumer })
	first := b.start(next).running(bedPartitions)
	b.load(200, 16)
	second := b.start(next)
	first.running(2)
	second.running(2)
	b.load(200, 16)
	b.handled()
	first.end()
	second.running(bedPartitions)
	b.load(100, 16)
	b.handled()
	b.exactlyOnce(16)
	second.end()
	second.stateIsTheChangelog()
}

// TestWorker_KeepsItsPromisesAboutMembershipOnKafka moves partitions between members of both protocols.
//
//nolint:paralleltest // The tests of one cluster share two cores with it.
func TestWorker_KeepsItsPromisesAboutMembershipOnKafka(t *testing.T) {
	c := kafkatest.Shared(t, 1)
	for protocol, use := range protocols() {
		for _, tc := range groupCore() {
			t.Run(protocol+"/"+tc.name, func(t *testing.T) { tc.test(newReal(t, c, 2), use) })
		}
	}
}

// BenchmarkWorker runs turns that do nothing but what each turn costs here: a record decoded, three changelog records and twelve
// events, all of them on the topic before it starts.
func BenchmarkWorker(b *testing.B) {
	bed := newReal(b, kafkatest.Shared(b, 1), 2)
	records := make([]*kgo.Record, b.N)
	for i := range records {
		records[i] = turn("session-"+strconv.Itoa(i%2000), "turn-"+strconv.Itoa(i))
	}
	bed.produce(records...)
	b.ReportAllocs()
	b.ResetTimer()
	p := bed.start(func(s *setup) {
		s.deps.Handler = busyHandler{topic: bed.output.Name, value: make([]byte, 500)}
	})
	bed.handled()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
	p.stop()
	<-p.ended
}

type busyHandler struct {
	topic string
	value []byte
}

func (h busyHandler) Open(_ context.Context, a *Assignment) (PartitionHandler, error) {
	return &busyPartition{busyHandler: h, echoPartition: echoPartition{echo: &echo{}, a: a}}, nil
}

type busyPartition struct {
	busyHandler
	echoPartition
}

func (p *busyPartition) Handle(_ context.Context, rec *Record) error {
	for step := range 4 {
		e := &statestore.Effect{
			Mutations: []statestore.Mutation{{Op: statestore.OpSet, Key: "turn/" + rec.Event.TurnID, Value: p.value[:100]}},
			Offset:    statestore.NoOffset,
		}
		for range 3 {
			e.Outputs = append(e.Outputs, statestore.Output{
				Topic: p.topic, Key: rec.Key, Value: p.value, Partition: -1,
				Headers: []statestore.Header{{Key: "ce_id", Value: p.value[:20]}, {Key: "ce_type", Value: p.value[:20]}, {Key: "traceparent", Value: p.value[:50]}},
			})
		}
		if step == 3 {
			e.Offset, e.Urgent = rec.Offset, true
			e.Mutations = append(e.Mutations, statestore.Mutation{Op: statestore.OpSet, Key: "history/" + rec.Event.SessionID, Value: p.value})
		}
		if err := p.add(e); err != nil {
			return err
		}
	}
	return nil
}
