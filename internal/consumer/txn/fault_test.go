package txn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/netcut"
)

func keys(k ...kmsg.Key) []kmsg.Key { return k }

// TestRing_DoesWhatEachErrorAsksFor goes through the errors of the brokers at every step. After each the next cycle must
// commit, and nothing of the failed one may be seen.
func TestRing_DoesWhatEachErrorAsksFor(t *testing.T) {
	t.Parallel()
	const always = -1
	for _, tc := range []struct {
		name    string
		fault   kfake.Fault
		version int
		outcome Outcome
		reason  error
		// replaced is the number of slots made anew.
		replaced int
		fatal    bool
	}{
		{
			name:  "offsets: CONCURRENT_TRANSACTIONS passes",
			fault: kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.ConcurrentTransactions, Count: 5}, outcome: Committed,
		},
		{
			name:  "offsets: the coordinator loads",
			fault: kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.CoordinatorLoadInProgress, Count: 2}, outcome: Committed,
		},
		{
			name:  "offsets: applied, but REQUEST_TIMED_OUT",
			fault: kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.RequestTimedOut, Count: 2}, outcome: Committed,
		},
		{
			name:   "offsets: CONCURRENT_TRANSACTIONS up to the deadline",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.ConcurrentTransactions, Count: always},
			reason: errOffsetsDeadline, replaced: 1,
		},
		{
			name:   "offsets: one of two partitions is refused",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.StaleMemberEpoch, Partitions: []int32{1}},
			reason: ErrRebalance,
		},
		{
			name:   "offsets: a rebalance",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.RebalanceInProgress},
			reason: ErrRebalance,
		},
		{
			name:   "offsets: the generation is over",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.IllegalGeneration},
			reason: ErrRebalance,
		},
		{
			name:   "offsets: the member is unknown",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.UnknownMemberID},
			reason: ErrMemberUnknown,
		},
		{
			name:   "offsets: the group is gone",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.GroupIDNotFound},
			reason: ErrMemberUnknown,
		},
		{
			name:   "offsets: another process has the instance id",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.FencedInstanceID},
			reason: ErrFencedInstance, fatal: true,
		},
		{
			name:   "offsets: the group may not be read",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.GroupAuthorizationFailed},
			reason: ErrConfig,
		},
		{
			name:   "offsets: the topic was made again",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.UnknownTopicID},
			reason: ErrTopicGone,
		},
		{
			name:   "offsets: fenced",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.InvalidProducerEpoch},
			reason: kerr.InvalidProducerEpoch, replaced: 1,
		},
		{
			name:   "offsets: the transaction must be aborted",
			fault:  kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.TransactionAbortable},
			reason: ErrTransient,
		},
		{
			name:  "offsets added: CONCURRENT_TRANSACTIONS passes",
			fault: kfake.Fault{Keys: keys(kmsg.AddOffsetsToTxn), Err: kerr.ConcurrentTransactions, Count: 5}, version: 1,
			outcome: Committed,
		},
		{
			name:   "offsets added: the transactional id is forbidden",
			fault:  kfake.Fault{Keys: keys(kmsg.AddOffsetsToTxn), Err: kerr.TransactionalIDAuthorizationFailed},
			reason: ErrConfig, version: 1,
		},
		{
			name:   "produce: fenced",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.InvalidProducerEpoch},
			reason: kerr.InvalidProducerEpoch, replaced: 1,
		},
		{
			name:   "produce: the id has expired",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.InvalidProducerIDMapping, Partitions: []int32{1}},
			reason: ErrTransient, replaced: 1,
		},
		{
			name:   "produce: the transaction is unknown",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.InvalidTxnState, Partitions: []int32{1}},
			reason: ErrTransient, replaced: 1,
		},
		{
			name:   "produce: the producer is unknown",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.UnknownProducerID, Partitions: []int32{1}},
			reason: ErrTransient, replaced: 1,
		},
		{
			name:   "produce: a batch was lost",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.OutOfOrderSequenceNumber, Partitions: []int32{1}},
			reason: kerr.OutOfOrderSequenceNumber, replaced: 1,
		},
		{
			name:  "produce: the disk fails for a while",
			fault: kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.KafkaStorageError, Count: 3}, outcome: Committed,
		},
		{
			name:   "produce: an invalid record",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.InvalidRecord, Partitions: []int32{1}},
			reason: ErrTooLarge,
		},
		{
			name:   "produce: a damaged record",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.CorruptMessage, Partitions: []int32{1}},
			reason: ErrTooLarge,
		},
		{
			name:   "produce: the transaction must be aborted",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.TransactionAbortable, Partitions: []int32{1}},
			reason: ErrTransient,
		},
		{
			name:   "produce: too large in one partition",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.MessageTooLarge, Partitions: []int32{1}},
			reason: ErrTooLarge,
		},
		{
			name:   "produce: too large in all partitions",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.MessageTooLarge},
			reason: ErrTooLarge, replaced: 1,
		},
		{
			name:   "produce: a topic is forbidden",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.TopicAuthorizationFailed, Topic: "bed-out"},
			reason: ErrConfig,
		},
		{
			name:  "produce: too few replicas for a while",
			fault: kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.NotEnoughReplicas, Count: 3}, outcome: Committed,
		},
		{
			name:   "produce: too few replicas up to the deadline",
			fault:  kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.NotEnoughReplicas, Count: always},
			reason: errFlushDeadline, replaced: 1,
		},
		{
			name:  "end: CONCURRENT_TRANSACTIONS passes",
			fault: kfake.Fault{Keys: keys(kmsg.EndTxn), Err: kerr.ConcurrentTransactions, Count: 3}, outcome: Committed,
		},
		{
			name:   "end: the transaction must be aborted",
			fault:  kfake.Fault{Keys: keys(kmsg.EndTxn), Err: kerr.TransactionAbortable},
			reason: ErrTransient,
		},
		{
			name:   "end: nobody knows",
			fault:  kfake.Fault{Keys: keys(kmsg.EndTxn), Err: kerr.UnknownServerError},
			reason: ErrTransient, replaced: 1,
		},
		{
			name:   "end: fenced",
			fault:  kfake.Fault{Keys: keys(kmsg.EndTxn), Err: kerr.ProducerFenced},
			reason: kerr.ProducerFenced, replaced: 1,
		},
		{
			name: "end: no answer up to the deadline", reason: ErrTransient, replaced: 1,
			fault: kfake.Fault{Keys: keys(kmsg.EndTxn), Err: kerr.CoordinatorNotAvailable, Count: always},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1, cmp.Or(tc.version, 2))
				w := f.worker()
				requireOutcome(t, w.commit("before", 0, 1), Committed, nil)
				slots := clients(w.ring)
				fault := f.cluster.Fault(tc.fault)
				c := w.cycle("fault", 0, 1)
				res, err := w.ring.Commit(t.Context(), c)
				if fault.Hits() == 0 {
					t.Fatal("the fault was not met")
				}
				fault.Remove()
				if tc.fatal != (err != nil) {
					t.Fatalf("got error %v, want one: %t", err, tc.fatal)
				}
				requireOutcome(t, res, tc.outcome, tc.reason)
				want := concat("before")
				if w.apply(c, res); res.Outcome == Committed {
					want = concat("before", "fault")
				}
				equal(t, replaced(w.ring, slots), tc.replaced)
				if tc.fatal {
					f.requireOnce(want...)
					return
				}
				for i := range 3 {
					id := "after-" + strconv.Itoa(i)
					requireOutcome(t, w.commit(id, 0, 1), Committed, nil)
					want = append(want, concat(id)...)
				}
				f.requireOnce(want...)
			})
		})
	}
}

func clients(r *Ring) []*kgo.Client {
	var out []*kgo.Client
	for _, s := range r.slots {
		out = append(out, s.client)
	}
	return out
}

func replaced(r *Ring, before []*kgo.Client) int {
	n := 0
	for i, s := range r.slots {
		if s.client != before[i] {
			n++
		}
	}
	return n
}

// TestRing_NamesWhatIsRefused checks the details that a consumer acts on.
func TestRing_NamesWhatIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		w := f.worker()
		try := func(fault kfake.Fault) error {
			defer f.cluster.Fault(fault).Remove()
			return w.commit("a", 0, 1).Err
		}
		err := try(kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.TopicAuthorizationFailed, Topic: f.output})
		if refused, ok := errors.AsType[*ConfigError](err); !ok || refused.Resource != "topic "+f.output {
			t.Errorf("got %v, want a refusal of topic %s", err, f.output)
		}
		err = try(kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.GroupAuthorizationFailed})
		if refused, ok := errors.AsType[*ConfigError](err); !ok || refused.Resource != "group "+f.name {
			t.Errorf("got %v, want a refusal of group %s", err, f.name)
		}
		err = try(kfake.Fault{Keys: keys(kmsg.TxnOffsetCommit), Err: kerr.UnknownTopicID})
		if gone, ok := errors.AsType[*TopicGoneError](err); !ok || gone.Topic != f.input {
			t.Errorf("got %v, want topic %s gone", err, f.input)
		}
		err = try(kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.RecordListTooLarge, Topic: f.output, Partitions: []int32{1}})
		if refused, ok := errors.AsType[*RecordError](err); !ok || !slices.Equal(refused.Indexes, []int{3}) {
			t.Errorf("got %v, want record 3 refused", err)
		}
	})
}

func TestRing_GivesUpATopicThatWasDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		w := f.worker()
		requireOutcome(t, w.commit("before", 0), Committed, nil)
		must(t, f.cluster.DeleteTopic(f.output))
		res := w.commit("gone", 0)
		requireOutcome(t, res, Aborted, ErrTopicGone)
		if gone, ok := errors.AsType[*TopicGoneError](res.Err); !ok || gone.Topic != f.output {
			t.Fatalf("got %v, want topic %s gone", res.Err, f.output)
		}
		equal(t, f.visible(f.changelog), map[string]int{"before/0": 1})
	})
}

// TestRing_OutlivesAnExpiredTransaction: the process was stopped for longer than its transaction lives.
func TestRing_OutlivesAnExpiredTransaction(t *testing.T) {
	t.Parallel()
	for _, at := range []Step{StepProduce, StepOffsets, StepEnd} {
		for _, version := range []int{1, 2} {
			t.Run(at.String()+" version "+strconv.Itoa(version), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var pause time.Duration
					f := newFake(t, 1, version)
					w := f.worker(func(c *Config) {
						c.Timeout = 2 * time.Second
						c.Hooks.Before = func(_ context.Context, s Step) {
							if s == at {
								time.Sleep(pause)
							}
						}
					})
					requireOutcome(t, w.commit("before", 0, 1), Committed, nil)
					pause = 3 * time.Second
					requireOutcome(t, w.commit("expired", 0, 1), Aborted, ErrTransient)
					pause = 0
					for _, id := range []string{"after-1", "after-2", "after-3"} {
						requireOutcome(t, w.commit(id, 0, 1), Committed, nil)
					}
					f.requireOnce(concat("before", "after-1", "after-2", "after-3")...)
				})
			})
		}
	}
}

func TestRing_StopsWhenItIsFencedAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		w := f.worker()
		defer f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.InvalidProducerEpoch, Count: -1}).Remove()
		for range maxFences {
			requireOutcome(t, w.commit("fenced", 0), Aborted, ErrTransient)
		}
		if _, err := w.ring.Commit(t.Context(), w.cycle("fenced", 0)); !errors.Is(err, ErrDuplicateID) {
			t.Fatalf("got %v, want %v", err, ErrDuplicateID)
		}
	})
}

func TestRing_IsFencedNowAndThenWithoutHarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		w := f.worker()
		defer f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.InvalidProducerEpoch, Count: -1}).Remove()
		for range 4 * maxFences {
			requireOutcome(t, w.commit("fenced", 0), Aborted, ErrTransient)
			time.Sleep(fenceWindow/maxFences + time.Second)
		}
	})
}

// TestRing_WaitsForAnOutcomeAsLongAsItTakes: the coordinators are away after the end of a transaction was lost.
func TestRing_WaitsForAnOutcomeAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		w := f.worker()
		requireOutcome(t, w.commit("before", 0, 1), Committed, nil)
		f.cluster.Fault(
			kfake.Fault{Keys: keys(kmsg.EndTxn)},
			kfake.Fault{Keys: keys(kmsg.InitProducerID), Count: 20},
			kfake.Fault{Keys: keys(kmsg.OffsetFetch), Err: kerr.UnstableOffsetCommit, Count: 20, Group: f.name},
		)
		res := w.commit("unknown", 0, 1)
		requireOutcome(t, res, Aborted, ErrTransient)
		equal(t, res.Resolved, true)
		requireOutcome(t, w.commit("after", 0, 1), Committed, nil)
		f.requireOnce(concat("before", "after")...)
	})
}

func TestRing_AppliesNothingWhenItMayNotWaitForTheOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		w := f.worker()
		f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.EndTxn)}, kfake.Fault{Keys: keys(kmsg.InitProducerID), Count: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, err := w.ring.Commit(ctx, w.cycle("unknown", 0))
		if !errors.Is(err, ErrUndecided) || res.Outcome == Committed {
			t.Fatalf("got %s, %v; want %v", res.Outcome, err, ErrUndecided)
		}
	})
}

// TestRing_KnowsAnOutcomeThoughAPartitionWasTakenOver: between the lost answer and the question another worker has
// committed one of two partitions.
func TestRing_KnowsAnOutcomeThoughAPartitionWasTakenOver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		how     netcut.Cut
		outcome Outcome
	}{
		{"committed", netcut.CutAnswer, Committed},
		{"not committed", netcut.CutRequest, Aborted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1, 2)
				var other *worker
				w := f.worker(func(c *Config) {
					c.Hooks.Before = func(_ context.Context, s Step) {
						if s == StepEnd {
							f.wires.breakAt(kmsg.EndTxn, tc.how)
						}
						if s == StepResolve {
							requireOutcome(t, other.commit("other", 1), Committed, nil) //nolint:contextcheck // another process
						}
					}
					c.Hooks.After = func(_ context.Context, s Step) {
						if s == StepEnd {
							f.wires.mend()
						}
					}
				})
				other = f.worker(func(c *Config) { c.Instance = "pod-1" })
				res := w.commit("unknown", 0, 1)
				equal(t, res.Outcome, tc.outcome)
				equal(t, res.Lost, []int32{1})
				if tc.outcome == Aborted {
					requireOutcome(t, res, Aborted, ErrPartitionLost)
				}
			})
		})
	}
}
