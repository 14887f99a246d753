package txn

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/netcut"
)

// core is what must hold on every broker; each test gets a bed of its own.
var core = []struct {
	name string
	test func(b *bed)
}{
	{"commits records, offsets and metadata together", commitsTogether},
	{"goes on through many cycles on all slots", manyCycles},
	{"aborts when a promise fails, the next cycle carries everything", abortsOnPromise},
	{"blames the one record that is too large", blamesTheOne},
	{"sends smaller batches when a batch is too large", sendsSmallerBatches},
	{"aborts when the check fails", abortsOnCheck},
	{"aborts when the group has moved on", abortsOnGeneration},
	{"aborts for a member that has left", abortsOnUnknownMember},
	{"refuses a membership without a fence", refusesUnfenced},
	{"finds an unknown outcome committed", unknownApplied},
	{"finds an unknown outcome not committed", unknownNotApplied},
	{"refuses a changelog that was made anew", refusesReplacedLog},
	{"detects a second process that has committed the same cid", secondProcess},
	{"a predecessor's open transaction is aborted at once", predecessor},
	{"breaks off when its context ends", canceled},
}

func commitsTogether(b *bed) {
	w := b.worker()
	res := w.commit("a", 0, 2)
	requireOutcome(b.t, res, Committed, nil)
	b.requireOnce(values("a", 0, 2)...)
	committed := b.committed()
	for _, p := range []int32{0, 2} {
		equal(b.t, committed[p].At, 1)
		equal(b.t, committed[p].Metadata, res.Metadata[p])
		m, ok := ParseMetadata(committed[p].Metadata)
		equal(b.t, ok, true)
		equal(b.t, m, Metadata{
			TxID: w.ring.slots[0].txID, Incarnation: w.ring.cfg.Incarnation, CID: res.CID, ChangelogNext: 1,
		})
		equal(b.t, res.ChangelogNext[p], 1)
	}
	_, moved := committed[1]
	equal(b.t, moved, false)
}

func manyCycles(b *bed) {
	w := b.worker()
	var want []string
	for i := range 20 {
		id := string(rune('a' + i))
		partitions := []int32{int32(i % 4), int32((i + 1) % 4)}
		requireOutcome(b.t, w.commit(id, partitions...), Committed, nil)
		want = append(want, values(id, partitions...)...)
	}
	b.requireOnce(want...)
	// A position is right behind the last record; how many markers follow it depends on when they were written.
	next := map[int32]int64{}
	for _, r := range b.read(b.changelog) {
		next[r.Partition] = max(next[r.Partition], r.Offset+1)
	}
	for p, o := range w.partitions {
		equal(b.t, o.ChangelogNext, next[p])
	}
}

func abortsOnPromise(b *bed) {
	w := b.worker()
	requireOutcome(b.t, w.commit("a", 0, 1), Committed, nil)
	c := w.cycle("b", 0, 1)
	large := make([]byte, 3<<20)
	c.Records = slices.Insert(c.Records, 2, &kgo.Record{Topic: b.output, Partition: 3, Value: large})
	res, err := w.ring.Commit(b.t.Context(), c)
	must(b.t, err)
	requireOutcome(b.t, res, Aborted, ErrTooLarge)
	refused, ok := errors.AsType[*RecordError](res.Err)
	if !ok || !cmp.Equal(refused.Indexes, []int{2}) {
		b.t.Fatalf("got %v, want the record error of record 2", res.Err)
	}
	requireOutcome(b.t, w.commit("b", 0, 1), Committed, nil)
	b.requireOnce(append(values("a", 0, 1), values("b", 0, 1)...)...)
}

func abortsOnCheck(b *bed) {
	w := b.worker()
	errMoved := errors.New("partition 1 was revoked")
	c := w.cycle("a", 0, 1)
	c.Check = func() error { return errMoved }
	res, err := w.ring.Commit(b.t.Context(), c)
	must(b.t, err)
	requireOutcome(b.t, res, Aborted, ErrStale)
	requireOutcome(b.t, res, Aborted, errMoved)
	requireOutcome(b.t, w.commit("a", 0), Committed, nil)
	b.requireOnce(values("a", 0)...)
}

func abortsOnGeneration(b *bed) {
	w := b.worker()
	for _, off := range []int32{-1, 1} {
		c := w.cycle("old", 0, 1)
		if c.Group.Generation += off; c.Group.Generation <= 0 {
			continue // refused before it gets to the broker, another test
		}
		res, err := w.ring.Commit(b.t.Context(), c)
		must(b.t, err)
		requireOutcome(b.t, res, Aborted, ErrRebalance)
	}
	requireOutcome(b.t, w.commit("new", 0, 1), Committed, nil)
	b.requireOnce(values("new", 0, 1)...)
}

func abortsOnUnknownMember(b *bed) {
	w := b.worker()
	c := w.cycle("a", 0)
	c.Group.MemberID = "nobody"
	res, err := w.ring.Commit(b.t.Context(), c)
	must(b.t, err)
	requireOutcome(b.t, res, Aborted, ErrMemberUnknown)
	b.requireOnce()
}

func refusesUnfenced(b *bed) {
	w := b.worker()
	for _, m := range []Membership{{}, {MemberID: "m"}, {MemberID: "m", Generation: -1}, {Generation: 1}} {
		c := w.cycle("a", 0)
		c.Group = m
		res, err := w.ring.Commit(b.t.Context(), c)
		must(b.t, err)
		requireOutcome(b.t, res, Aborted, ErrNotMember)
	}
	b.requireOnce()
}

// unknown commits a cycle whose EndTxn is cut as often as the client tries.
func unknown(b *bed, how netcut.Cut) Result {
	w := b.worker(func(c *Config) {
		c.Timeout = 2 * time.Second
		c.Hooks.Before = func(_ context.Context, s Step) {
			if s == StepEnd && len(b.wires.armed) > 0 {
				b.wires.breakAt(kmsg.EndTxn, how)
				<-b.wires.armed
			}
		}
		c.Hooks.After = func(_ context.Context, s Step) {
			if s == StepEnd && b.wires.mend() > 0 {
				b.wires.cuts++
			}
		}
	})
	requireOutcome(b.t, w.commit("before", 0, 1), Committed, nil)
	b.wires.armed <- struct{}{}
	res := w.commit("unknown", 0, 1)
	equal(b.t, b.wires.cuts, 1)
	equal(b.t, res.Resolved, true)
	for _, id := range []string{"after-1", "after-2", "after-3"} {
		requireOutcome(b.t, w.commit(id, 0, 1), Committed, nil)
	}
	return res
}

func unknownApplied(b *bed) {
	res := unknown(b, netcut.CutAnswer)
	requireOutcome(b.t, res, Committed, nil)
	b.requireOnce(concat("before", "unknown", "after-1", "after-2", "after-3")...)
}

func unknownNotApplied(b *bed) {
	res := unknown(b, netcut.CutRequest)
	requireOutcome(b.t, res, Aborted, ErrTransient)
	equal(b.t, len(res.Lost), 0)
	b.requireOnce(concat("before", "after-1", "after-2", "after-3")...)
}

func concat(ids ...string) []string {
	var out []string
	for _, id := range ids {
		out = append(out, values(id, 0, 1)...)
	}
	return out
}

// secondProcess: the first is stopped between its offsets and its end; the second takes its ids over, and commits a
// cycle of the same number on the same slot. The cid alone would tell the first that its cycle was committed.
func secondProcess(b *bed) {
	var second *worker
	first := b.worker(func(c *Config) {
		c.Hooks.Before = func(_ context.Context, s Step) {
			if s == StepEnd && second == nil {
				second = b.worker()                                                //nolint:contextcheck // a process of its own
				requireOutcome(b.t, second.commit("second", 0, 1), Committed, nil) //nolint:contextcheck // likewise
			}
		}
	})
	res, err := first.ring.Commit(b.t.Context(), first.cycle("first", 0, 1))
	if !errors.Is(err, ErrSecondProcess) || res.Outcome == Committed {
		b.t.Fatalf("got %s, %v; want %v", res.Outcome, err, ErrSecondProcess)
	}
	equal(b.t, res.CID, uint64(1))
	if _, err := first.ring.Commit(b.t.Context(), first.cycle("again", 0)); !errors.Is(err, ErrClosed) {
		b.t.Fatalf("got %v, want %v", err, ErrClosed)
	}
	requireOutcome(b.t, second.commit("next", 0, 1), Committed, nil)
	b.requireOnce(concat("second", "next")...)
}

// predecessor: a worker dies with an open transaction; the next one with its ids needs to wait for no timeout.
func predecessor(b *bed) {
	ctx, die := context.WithCancel(b.t.Context())
	dead := b.worker(func(c *Config) {
		c.Hooks.Before = func(_ context.Context, s Step) {
			if s == StepOffsets {
				die()
			}
		}
	})
	c := dead.cycle("dead", 0, 1)
	c.Records[0].Key = []byte("dead")
	res, err := dead.ring.Commit(ctx, c)
	must(b.t, err)
	requireOutcome(b.t, res, Aborted, context.Canceled)
	dead.ring.Close()

	began := time.Now()
	w := b.worker()
	requireOutcome(b.t, w.commit("next", 0, 1), Committed, nil)
	b.requireOnce(values("next", 0, 1)...)
	if took := time.Since(began); took > dead.ring.cfg.Timeout/2 {
		b.t.Fatalf("took %s, as if it had waited for the timeout of the dead", took)
	}
}

func canceled(b *bed) {
	for _, at := range []Step{StepBegin, StepProduce, StepFlush, StepOffsets, StepCheck} {
		ctx, cancel := context.WithCancel(b.t.Context())
		w := b.worker(func(c *Config) {
			c.Hooks.Before = func(_ context.Context, s Step) {
				if s == at {
					cancel()
				}
			}
		})
		res, err := w.ring.Commit(ctx, w.cycle("a", 0))
		must(b.t, err)
		requireOutcome(b.t, res, Aborted, context.Canceled)
		w.ring.Close()
	}
	// After the offsets the caller can't break a cycle off any more.
	ctx, cancel := context.WithCancel(b.t.Context())
	w := b.worker(func(c *Config) {
		c.Hooks.Before = func(_ context.Context, s Step) {
			if s == StepEnd {
				cancel()
			}
		}
	})
	res, err := w.ring.Commit(ctx, w.cycle("late", 0))
	must(b.t, err)
	requireOutcome(b.t, res, Committed, nil)
	b.requireOnce(values("late", 0)...)
}
