//go:build kafka

package kafka_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// awaitState returns when the transaction of an id is in a state.
func (f *fixture) awaitState(id, state string) {
	f.Helper()
	f.eventually("the state "+state, func() bool { return f.state(id) == state })
}

func (f *fixture) state(id string) string {
	f.Helper()
	described, err := f.adm.DescribeTransactions(f.ctx, id)
	f.must(err)
	f.must(described[id].Err)
	return described[id].State
}

func TestTimeout_ANewClientWorksWhateverTheOldOneTriedNext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		next func(f *fixture, p *producer)
	}{
		{"commit", func(f *fixture, p *producer) {
			f.want("the commit", p.end(kgo.TryCommit), kerr.InvalidTxnState)
		}},
		{"produce", func(f *fixture, p *producer) {
			f.want("the record", p.produce("late"), kerr.InvalidProducerEpoch)
			f.want("the commit", p.end(kgo.TryCommit), kerr.OperationNotAttempted)
		}},
		{"abort", func(f *fixture, p *producer) {
			f.want("the abort", p.end(kgo.TryAbort), nil)
		}},
		{"nothing", func(*fixture, *producer) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, kafkatest.Shared(t, 1), 1)
			id := kafkatest.Name(t)
			old := f.producer(id, kgo.TransactionTimeout(time.Second))
			old.begin()
			f.must(old.produce("timed out"))
			f.awaitState(id, "CompleteAbort")
			tc.next(f, old)

			fresh := f.producer(id)
			fresh.begin()
			f.must(fresh.produce("after"))
			f.must(fresh.end(kgo.TryCommit))
			if got := f.values(); !slices.Equal(got, []string{"after"}) {
				t.Errorf("readers see %q, want only what came after", got)
			}
		})
	}
}

func TestInitProducerID_TakesOverAnOpenTransactionAndFencesItsOwner(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 1)
	id := kafkatest.Name(t)
	old := f.producer(id)
	old.begin()
	f.must(old.produce("of the old owner"))
	oldID, oldEpoch := old.identity()

	fresh := f.producer(id)
	freshID, freshEpoch := fresh.identity() // sends InitProducerID
	if freshID != oldID || freshEpoch <= oldEpoch {
		t.Errorf("producer id and epoch went from %d, %d to %d, %d", oldID, oldEpoch, freshID, freshEpoch)
	}
	if got := f.state(id); got != "Empty" {
		t.Errorf("the transaction is %s, want it ended (Empty)", got)
	}
	f.want("a record of the old owner", old.produce("late"), kerr.InvalidProducerEpoch)
	f.want("its commit", old.end(kgo.TryCommit), kerr.OperationNotAttempted)
	f.want("its abort", old.end(kgo.TryAbort), kerr.ProducerFenced)
	fresh.begin()
	f.must(fresh.produce("of the new owner"))
	f.must(fresh.end(kgo.TryCommit))
	if got := f.values(); !slices.Equal(got, []string{"of the new owner"}) {
		t.Errorf("readers see %q", got)
	}
}

func TestEpoch_RisesByOneWithEachTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 1)
	p := f.producer(kafkatest.Name(t))
	_, before := p.identity()
	for i, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryCommit} {
		p.begin()
		f.must(p.produce("x"))
		f.must(p.end(how))
		if _, now := p.identity(); int(now) != int(before)+i+1 {
			t.Errorf("after %d transactions the epoch went from %d to %d", i+1, before, now)
		}
	}
}

func TestAddOffsetsToTxn_IsAcceptedUnderTransactionVersion2(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 1)
	p := f.producer(kafkatest.Name(t))
	p.begin()
	f.must(p.produce("x"))
	p.addOffsets()
	f.want("the offset", p.commitOffsets(nobody(), "m", map[int32]int64{0: 1})[0], nil)
	f.must(p.end(kgo.TryCommit))
	if offset, metadata := f.committed(); offset != 1 || metadata != "m" {
		t.Errorf("committed %d %q, want 1 \"m\"", offset, metadata)
	}
}

// addOffsets sends AddOffsetsToTxn and wants it accepted.
func (p *producer) addOffsets() {
	p.f.Helper()
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.Group = p.id, p.f.group
	req.ProducerID, req.ProducerEpoch = p.identity()
	resp, err := req.RequestWith(p.f.ctx, p.Client)
	p.f.must(err)
	p.f.must(kerr.ErrorForCode(resp.ErrorCode))
}

func TestTransactionVersion1_NeedsAddOffsetsToTxnFirstAndKeepsTheEpoch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Private(t, kafkatest.Config{TransactionVersion: 1}), 1)
	versions := kversion.V3_9_0()
	versions.SetMaxKeyVersion(kmsg.AddPartitionsToTxn.Int16(), 3)
	p := f.producer(kafkatest.Name(t), kgo.MaxVersions(versions))
	_, before := p.identity()
	p.begin()
	f.must(p.produce("without"))
	f.want("the offset without AddOffsetsToTxn", p.commitOffsets(nobody(), "", map[int32]int64{0: 1})[0], kerr.TransactionAbortable)
	f.must(p.end(kgo.TryAbort))
	p.begin()
	f.must(p.produce("with"))
	p.addOffsets()
	f.want("the offset with AddOffsetsToTxn", p.commitOffsets(nobody(), "", map[int32]int64{0: 2})[0], nil)
	f.must(p.end(kgo.TryCommit))
	if offset, _ := f.committed(); offset != 2 {
		t.Errorf("committed %d, want 2", offset)
	}
	if _, now := p.identity(); now != before {
		t.Errorf("the epoch went from %d to %d", before, now)
	}
}

func TestOffsets_OfALaterSlotStayWhenAnEarlierOneEndsAfterIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 1)
	earlier, later := f.producer(kafkatest.Name(t)), f.producer(kafkatest.Name(t))
	earlier.begin()
	later.begin()
	f.must(earlier.produce("earlier"))
	f.must(later.produce("later"))
	f.want("the earlier offset", earlier.commitOffsets(nobody(), "earlier", map[int32]int64{0: 10})[0], nil)
	f.want("the later offset", later.commitOffsets(nobody(), "later", map[int32]int64{0: 20})[0], nil)
	f.must(later.end(kgo.TryCommit))
	f.must(earlier.end(kgo.TryCommit))
	if offset, metadata := f.committed(); offset != 20 || metadata != "later" {
		t.Errorf("committed %d %q, want 20 \"later\"", offset, metadata)
	}
	if got := f.values(); !slices.Equal(got, []string{"earlier", "later"}) {
		t.Errorf("readers see %q, want the order of the log", got)
	}
}

func TestEndTransaction_OfOffsetsAloneSendsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 1)
	p := f.producer(kafkatest.Name(t))
	p.begin()
	f.want("the offset", p.commitOffsets(nobody(), "", map[int32]int64{0: 1})[0], nil)
	f.want("the commit", p.end(kgo.TryCommit), nil)
	if got := f.state(p.id); got != "Ongoing" {
		t.Errorf("the transaction is %s, want it still Ongoing", got)
	}
}

func TestLargeRecord_ThatWasSentCompressedCannotBeSentAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 1)
	big := &kgo.Record{Topic: f.topic, Value: make([]byte, 5<<20)}
	sender := f.cluster.Client(f, kgo.ProducerBatchMaxBytes(16<<20), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	f.must(sender.ProduceSync(f.ctx, big).FirstErr())

	reader := f.cluster.Client(f, kgo.ConsumeTopics(f.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	records := reader.PollFetches(f.ctx).Records()
	if len(records) != 1 || len(records[0].Value) != 5<<20 {
		t.Fatalf("read %d records, want the large one", len(records))
	}
	p := f.producer(kafkatest.Name(t), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	p.begin()
	again := &kgo.Record{Topic: f.topic, Value: records[0].Value}
	f.want("the record again", p.ProduceSync(f.ctx, again).FirstErr(), kerr.MessageTooLarge)
}
