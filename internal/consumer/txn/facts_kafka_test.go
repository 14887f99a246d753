//go:build kafka

package txn

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// The commit cycle rests on facts about the broker that no protocol document states. A release of Kafka that changes one
// fails here.

// TestKafka_FencesAMembershipOfTheGroupBeforeARebalance: a classic group fences the whole membership, one of the
// consumer protocol only the partitions that moved.
//
//nolint:paralleltest // two cores are few for three brokers
func TestKafka_FencesAMembershipOfTheGroupBeforeARebalance(t *testing.T) {
	for _, tc := range []struct {
		name     string
		consumer []kgo.Opt
		kept     Outcome
	}{
		{"classic", nil, Aborted},
		{"consumer", []kgo.Opt{kgo.ServerSideBalancer()}, Committed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newReal(t, kafkatest.Shared(t, 1), 2, tc.consumer...)
			w := b.worker()
			before := b.consumer.membership()
			second := b.join(tc.consumer...)
			moved := second.wait(bedPartitions / 2)
			kept := b.consumer.wait(bedPartitions / 2)

			commit := func(id string, group Membership, partitions ...int32) Result {
				c := w.cycle(id, partitions...)
				c.Group = group
				res, err := w.ring.Commit(t.Context(), c)
				must(t, err)
				w.apply(c, res)
				return res
			}
			equal(t, commit("kept", before, kept...).Outcome, tc.kept)
			requireOutcome(t, commit("moved", before, moved...), Aborted, ErrRebalance)
			requireOutcome(t, commit("both", before, kept[0], moved[0]), Aborted, ErrRebalance)
			// Nobody but the epochs of the worker itself keeps a current member off the partitions of another.
			requireOutcome(t, commit("current", b.consumer.membership(), moved...), Committed, nil)

			left := second.membership()
			second.LeaveGroup()
			b.consumer.wait(bedPartitions)
			requireOutcome(t, commit("left", left, moved...), Aborted, ErrMemberUnknown)
		})
	}
}

// TestKafka_RaisesTheEpochWithEveryTransaction: what is on its way for one transaction can't land in the next. That
// partitions were announced must not change it.
//
//nolint:paralleltest // two cores are few for three brokers
func TestKafka_RaisesTheEpochWithEveryTransaction(t *testing.T) {
	for _, brokers := range []int{1, 3} {
		b := newReal(t, kafkatest.Shared(t, brokers), 2)
		w := b.worker(func(c *Config) { c.Slots = 1 })
		for range 5 {
			id, epoch, err := w.ring.slots[0].client.ProducerID(t.Context())
			must(t, err)
			requireOutcome(t, w.commit("a", 0, 1, 2, 3), Committed, nil)
			id2, epoch2, err := w.ring.slots[0].client.ProducerID(t.Context())
			must(t, err)
			if id2 != id || epoch2 != epoch+1 {
				t.Errorf("%d brokers: after id %d, epoch %d comes id %d, epoch %d; want the next epoch", brokers, id, epoch, id2, epoch2)
			}
		}
	}
}

// TestKafka_KeepsTheLaterOffsetOfTwoSlots: the markers of one slot may be written after those of the next cycle's.
//
//nolint:paralleltest // two cores are few for three brokers
func TestKafka_KeepsTheLaterOffsetOfTwoSlots(t *testing.T) {
	b := newReal(t, kafkatest.Shared(t, 1), 2)
	second := b.worker(func(c *Config) { c.Instance = "pod-1" })
	var inner Result
	first := b.worker(func(c *Config) {
		c.Hooks.Before = func(_ context.Context, s Step) {
			if s == StepEnd {
				second.partitions[0].Offset = 19
				inner = second.commit("second", 0) //nolint:contextcheck // another process
			}
		}
	})
	first.partitions[0].Offset = 9
	requireOutcome(t, first.commit("first", 0), Committed, nil)
	requireOutcome(t, inner, Committed, nil)
	b.requireOnce(append(values("first", 0), values("second", 0)...)...)
	equal(t, b.committed()[0].At, 20)
	equal(t, b.committed()[0].Metadata, inner.Metadata[0])
}
