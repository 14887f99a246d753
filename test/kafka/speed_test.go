//go:build kafka

package kafka_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// The facts of speed hold by factors of four and more on an idle machine; half of that is asked for here. They are about
// waits on the brokers, so each compares medians of single cycles, and none runs beside another test.
const (
	speedFactor     = 2
	speedPartitions = 12
	warmCycles      = 30
	measuredCycles  = 60
)

// ring is transactional producers that run commit cycles in turn.
type ring struct {
	f         *fixture
	slots     []*producer
	second    string // a topic beside the fixture's, as output beside changelog
	announce  bool
	perTopic  int // records for each partition of each topic
	cycles    int
	lastEpoch map[*producer]int16
}

func (f *fixture) ring(slots, perTopic int, announce bool) *ring {
	f.Helper()
	r := &ring{f: f, announce: announce, perTopic: perTopic, lastEpoch: map[*producer]int16{}}
	r.second, _ = f.newTopic(speedPartitions)
	for i := range slots {
		p := f.producer(fmt.Sprintf("%s-%d", kafkatest.Name(f), i), kgo.ConcurrentTransactionsBackoff(time.Millisecond),
			kgo.ProducerBatchCompression(kgo.Lz4Compression()))
		r.slots = append(r.slots, p)
	}
	return r
}

// median runs cycles back to back and returns the median time of one, after some that do not count.
func (r *ring) median() time.Duration {
	r.f.Helper()
	var times []time.Duration
	for i := range warmCycles + measuredCycles {
		begun := time.Now()
		r.cycle()
		if i >= warmCycles {
			times = append(times, time.Since(begun))
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// cycle is one commit cycle over all partitions of both topics, as the worker runs it.
func (r *ring) cycle() {
	f, p := r.f, r.slots[r.cycles%len(r.slots)]
	f.Helper()
	r.cycles++
	p.begin()
	_, epoch := p.identity()
	if last, ok := r.lastEpoch[p]; ok && epoch != last+1 {
		f.Fatalf("the epoch went from %d to %d over one transaction, so transaction.version 2 is not in force", last, epoch)
	}
	r.lastEpoch[p] = epoch
	if r.announce {
		p.announce(f.topic, r.second)
	}
	var records []*kgo.Record
	for _, topic := range []string{f.topic, r.second} {
		for partition := range int32(speedPartitions) {
			for range r.perTopic {
				records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: make([]byte, 500)})
			}
		}
	}
	f.must(p.ProduceSync(f.ctx, records...).FirstErr())
	offsets := map[int32]int64{}
	for partition := range int32(speedPartitions) {
		offsets[partition] = int64(r.cycles)
	}
	for _, err := range p.commitOffsets(nobody(), "", offsets) {
		f.must(err)
	}
	f.must(p.end(kgo.TryCommit))
}

// announce adds all partitions of some topics to the transaction before anything is written to them.
func (p *producer) announce(topics ...string) {
	p.f.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID = p.id
	req.ProducerID, req.ProducerEpoch = p.identity()
	for _, name := range topics {
		topic := kmsg.NewAddPartitionsToTxnRequestTopic()
		topic.Topic = name
		for partition := range int32(speedPartitions) {
			topic.Partitions = append(topic.Partitions, partition)
		}
		req.Topics = append(req.Topics, topic)
	}
	for {
		resp, err := req.RequestWith(p.f.ctx, p.Client)
		p.f.must(err)
		answer := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		if answer == nil {
			return
		}
		if !errors.Is(answer, kerr.ConcurrentTransactions) {
			p.f.Fatalf("announce: %v", answer)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-p.f.ctx.Done():
			p.f.Fatal("announce: CONCURRENT_TRANSACTIONS without end")
		}
	}
}

// wantFaster compares two ways; the quick one has to win by the factor. Other work on the machine hides a wait on the
// brokers rather than making one up, and so do brokers that are not warm yet, so it may try some times.
func wantFaster(t *testing.T, quick, slow *ring) {
	t.Helper()
	for range 8 {
		slowTime, quickTime := slow.median(), quick.median()
		t.Logf("a cycle takes %s against %s, a factor of %.1f", quickTime, slowTime, float64(slowTime)/float64(quickTime))
		if slowTime >= speedFactor*quickTime {
			return
		}
	}
	t.Errorf("want it quicker by a factor of %d", speedFactor)
}

//nolint:paralleltest // it measures time
func TestSpeed_ARingOfThreeBeatsOneProducer(t *testing.T) {
	f := newFixture(t, kafkatest.Shared(t, 1), speedPartitions)
	wantFaster(t, f.ring(3, 1, false), f.ring(1, 1, false))
}

//nolint:paralleltest // it measures time
func TestSpeed_OnThreeBrokersAnnouncedPartitionsBeatUnannouncedUnderTransactionVersion2(t *testing.T) {
	f := newFixture(t, kafkatest.Shared(t, 3), speedPartitions)
	wantFaster(t, f.ring(3, 5, true), f.ring(3, 5, false))
}
