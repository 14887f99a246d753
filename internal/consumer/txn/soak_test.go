package txn

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRing_TellsTheTruthUnderRandomFaults commits many cycles while requests fail, connections break, and leaders and
// coordinators move. Each cycle that was reported committed must be visible once, each that was not, never.
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
			t.Logf("seed %d", seed)
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

// disturb breaks something in every third cycle, and returns how to mend it.
func (f *fake) disturb(random *rand.Rand) func() {
	fault := func(key kmsg.Key, errs ...*kerr.Error) func() {
		h := f.cluster.Fault(kfake.Fault{Keys: keys(key), Err: errs[random.IntN(len(errs))], Count: 1 + random.IntN(3)})
		return h.Remove
	}
	wire := func(key kmsg.Key) func() {
		f.wires.breakAt(key, []cut{cutRequest, cutAnswer}[random.IntN(2)])
		return func() { f.wires.mend() }
	}
	switch random.IntN(30) {
	case 0:
		return fault(kmsg.Produce, kerr.NotEnoughReplicas, kerr.InvalidProducerEpoch, kerr.InvalidTxnState,
			kerr.ConcurrentTransactions, kerr.MessageTooLarge, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID,
			kerr.NotEnoughReplicasAfterAppend, kerr.TransactionAbortable, kerr.NotLeaderForPartition)
	case 1:
		return fault(kmsg.TxnOffsetCommit, kerr.ConcurrentTransactions, kerr.RequestTimedOut, kerr.IllegalGeneration,
			kerr.NotCoordinator, kerr.UnknownServerError, kerr.StaleMemberEpoch, kerr.InvalidProducerEpoch)
	case 2:
		return fault(kmsg.EndTxn, kerr.UnknownServerError, kerr.ConcurrentTransactions, kerr.TransactionAbortable,
			kerr.NotCoordinator, kerr.ProducerFenced, kerr.InvalidTxnState)
	case 3:
		return wire(kmsg.Produce)
	case 4:
		return wire(kmsg.TxnOffsetCommit)
	case 5, 6:
		return wire(kmsg.EndTxn)
	case 7:
		f.cluster.RehashCoordinators()
	case 8:
		f.cluster.ShufflePartitionLeaders()
	case 9:
		// The commit itself is done, only its answer says otherwise, and the client's second try with it.
		f.wires.breakAt(kmsg.EndTxn, cutAnswer)
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
