package txn

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/netcut"
)

// TestRing_TellsTheTruthUnderRandomFaults commits many cycles while requests fail, connections break, and leaders and
// coordinators move. Each cycle that was reported committed must be visible once, each that was not, never. LATHE_TEST_SEED runs one
// again.
func TestRing_TellsTheTruthUnderRandomFaults(t *testing.T) {
	t.Parallel()
	cycles := 300
	if testing.Short() {
		cycles = 100
	}
	for _, tc := range []struct {
		name             string
		brokers, version int
	}{
		{"one broker", 1, 2},
		{"three brokers", 3, 2},
		{"transaction.version 1", 3, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			if given := os.Getenv("LATHE_TEST_SEED"); given != "" {
				var err error
				seed, err = strconv.ParseUint(given, 10, 64)
				must(t, err)
			}
			t.Logf("replay: LATHE_TEST_SEED=%d", seed)
			synctest.Test(t, func(t *testing.T) {
				soak(t, newFake(t, tc.brokers, tc.version), rand.New(rand.NewPCG(seed, 0)), cycles)
			})
		})
	}
}

func soak(t *testing.T, f *fake, random *rand.Rand, cycles int) {
	t.Helper()
	w := f.worker()
	committed := make([][]string, bedPartitions)
	var resolved, aborted, found int
	for i := range cycles {
		undo := f.disturb(random)
		id, partitions := strconv.Itoa(i), random.Perm(bedPartitions)[:1+random.IntN(bedPartitions)]
		res := w.commit(id, int32s(partitions)...)
		undo()
		if res.Resolved {
			resolved++
		}
		if res.Outcome == Aborted {
			aborted++
			if res.Err == nil {
				t.Fatalf("cycle %d was aborted without a reason", i)
			}
			// The group is healthy, so fences at this rate would look like a second process.
			time.Sleep(fenceWindow / 2)
			continue
		}
		if res.Resolved {
			found++
		}
		for _, p := range partitions {
			committed[p] = append(committed[p], id)
		}
	}
	t.Logf("%d cycles: %d aborted, %d resolved, %d of them committed", cycles, aborted, resolved, found)
	if aborted == 0 || resolved == 0 || found == 0 || found == resolved {
		t.Errorf("the faults were too tame to prove anything")
	}
	var want []string
	offsets := f.committed()
	for p, ids := range committed {
		for _, id := range ids {
			want = append(want, values(id, int32(p))...)
		}
		if len(ids) > 0 {
			equal(t, offsets[int32(p)].At, int64(len(ids)))
			equal(t, offsets[int32(p)].Metadata, w.partitions[int32(p)].Baseline)
		}
	}
	f.requireOnce(want...)
}

// soakErrors are the errors of each request that pass by themselves or with a new producer.
var soakErrors = map[kmsg.Key][]*kerr.Error{
	kmsg.Produce: {
		kerr.NotEnoughReplicas, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.ConcurrentTransactions, kerr.MessageTooLarge,
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerIDMapping, kerr.NotEnoughReplicasAfterAppend,
		kerr.TransactionAbortable, kerr.NotLeaderForPartition, kerr.KafkaStorageError, kerr.RequestTimedOut, kerr.RecordListTooLarge,
		kerr.InvalidRecord, kerr.CorruptMessage, kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, kerr.UnknownServerError,
		kerr.ProducerFenced, kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	},
	kmsg.TxnOffsetCommit: {
		kerr.ConcurrentTransactions, kerr.RequestTimedOut, kerr.IllegalGeneration, kerr.NotCoordinator, kerr.UnknownServerError,
		kerr.StaleMemberEpoch, kerr.InvalidProducerEpoch, kerr.RebalanceInProgress, kerr.UnknownMemberID, kerr.GroupIDNotFound,
		kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.TransactionAbortable,
		kerr.GroupAuthorizationFailed, kerr.UnknownTopicID, kerr.UnknownTopicOrPartition, kerr.ProducerFenced, kerr.OffsetMetadataTooLarge,
	},
	kmsg.EndTxn: {
		kerr.UnknownServerError, kerr.ConcurrentTransactions, kerr.TransactionAbortable, kerr.NotCoordinator, kerr.ProducerFenced,
		kerr.InvalidTxnState, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.RequestTimedOut, kerr.InvalidProducerEpoch,
		kerr.InvalidProducerIDMapping, kerr.TransactionalIDAuthorizationFailed,
	},
	kmsg.AddPartitionsToTxn: {
		kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.TransactionAbortable, kerr.InvalidTxnState,
		kerr.InvalidProducerIDMapping, kerr.ProducerFenced, kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition, kerr.UnknownServerError,
	},
	kmsg.AddOffsetsToTxn: {
		kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.InvalidTxnState, kerr.TransactionAbortable,
		kerr.ProducerFenced, kerr.GroupAuthorizationFailed, kerr.UnknownServerError,
	},
	kmsg.InitProducerID:  {kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut, kerr.UnknownServerError},
	kmsg.OffsetFetch:     {kerr.UnstableOffsetCommit, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.UnknownServerError},
	kmsg.FindCoordinator: {kerr.CoordinatorNotAvailable, kerr.UnknownServerError},
}

// disturb breaks something in two of five cycles, and returns how to mend it: requests are refused before they are carried out, carried
// out without an answer, or never come to be, at any step of the cycle and of what follows one that failed.
func (f *fake) disturb(random *rand.Rand) func() {
	steps := []kmsg.Key{
		kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.EndTxn, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.InitProducerID, kmsg.OffsetFetch,
		kmsg.FindCoordinator,
	}
	fault := func(key kmsg.Key) func() {
		errs := soakErrors[key]
		one := kfake.Fault{Keys: keys(key), Err: errs[random.IntN(len(errs))], Count: 1 + random.IntN(3)}
		if key == kmsg.Produce || key == kmsg.TxnOffsetCommit {
			if random.IntN(2) == 0 {
				one.Partitions = []int32{int32(random.IntN(bedPartitions))}
			}
		}
		return f.cluster.Fault(one).Remove
	}
	wire := func(key kmsg.Key) func() {
		f.wires.breakAt(key, []netcut.Cut{netcut.CutRequest, netcut.CutAnswer}[random.IntN(2)])
		return func() { f.wires.mend() }
	}
	switch random.IntN(20) {
	case 0, 1:
		return fault(steps[random.IntN(len(steps))])
	case 2: // What goes wrong after an end whose answer was lost.
		undo, again := wire(kmsg.EndTxn), fault(steps[4+random.IntN(4)])
		return func() { undo(); again() }
	case 3:
		return wire(steps[random.IntN(5)])
	case 4:
		return wire(kmsg.EndTxn)
	case 5:
		f.cluster.RehashCoordinators()
	case 6:
		f.cluster.ShufflePartitionLeaders()
	case 7:
		// The commit itself is done, only its answer says otherwise, and the client's second try with it.
		f.wires.breakAt(kmsg.EndTxn, netcut.CutAnswer)
		h := f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.EndTxn), Count: -1, When: func(kmsg.Request) bool {
			return f.wires.hits() > 1
		}})
		return func() { h.Remove(); f.wires.mend() }
	}
	return func() {}
}

func int32s(in []int) []int32 {
	out := make([]int32, 0, len(in))
	for _, i := range in {
		out = append(out, int32(i))
	}
	return out
}
