package dedupe

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// cancelOf is a cancel of turn t1 as it comes.
func cancelOf(session string) *schemas.TurnEvent {
	return &schemas.TurnEvent{Type: schemas.InputCancel, TurnID: "t1", SessionID: session, Reason: "changed my mind"}
}

func (b *bed) cancel(session string, offset int64) error {
	b.t.Helper()
	return b.store.Cancel(cancelOf(session), offset)
}

func cancelledFacts(j *Journal) (n int) {
	for _, f := range j.Frames() {
		if _, ok := f.Fact.(*fact.Cancelled); ok {
			n++
		}
	}
	return n
}

func TestCancel_OvertakesItsTurn(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"not committed yet", "committed", "by another worker"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			if err := b.cancel("s1", 10); err != nil {
				t.Fatalf("Cancel: %v", err)
			}
			if how != "not committed yet" {
				b.commit()
			}
			if how == "by another worker" {
				b.restart("w2")
			}
			j := b.accept(ask("t1", "hi", 11))
			stopped := 0
			j.OnCancel(func() { stopped++ })
			if cancelledFacts(j) != 1 || stopped != 1 || j.Resumed() {
				t.Errorf("the turn knows %d cancels and was stopped %d times; resumed %t", cancelledFacts(j), stopped, j.Resumed())
			}
			b.add(j, ended(schemas.StatusCancelled))
			b.commit()
			if got := b.ids(); !slices.Equal(got, []string{"t1/turn:start", "t1/turn:end"}) {
				t.Errorf("events %q", got)
			}
			if got := b.done(); !slices.Equal(got, []int64{10, 11}) {
				t.Errorf("offsets done %v", got)
			}
			if got := b.committedKeys(); !slices.Equal(got, []string{"hs1/00000000/0000", "tt1"}) {
				t.Errorf("the state holds %q", got)
			}
		})
	}
}

func TestCancel_StopsTheTurnThatRuns(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	b.commit()
	stopped := 0
	j.OnCancel(func() { stopped++ })
	for offset := range int64(3) { // Only the first says anything.
		if err := b.cancel("s1", 20+offset); err != nil {
			t.Fatalf("Cancel: %v", err)
		}
	}
	if stopped != 1 {
		t.Errorf("the turn was stopped %d times, want once", stopped)
	}
	b.commit()
	if got := b.done(); !slices.Equal(got, []int64{20, 21, 22}) {
		t.Errorf("offsets done %v, although the cancels are recorded", got)
	}
	b.restart("w2")
	j = b.accept(ask("t1", "hi", 10))
	if cancelledFacts(j) != 1 {
		t.Errorf("the next worker finds %d cancels, want one", cancelledFacts(j))
	}
	stopped = 0
	j.OnCancel(func() { stopped++ })
	if stopped != 1 {
		t.Errorf("the next worker is not told at once")
	}
	b.add(j, ended(schemas.StatusCancelled))
	b.commit()
	b.checkEvents()
	if len(b.outputs) != 2 {
		t.Errorf("events %q", b.ids())
	}
}

func TestCancel_IsRecordedForATurnThatWaits(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	j.Close()
	b.commit()
	b.restart("w2")
	if err := b.cancel("s1", 20); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	b.commit()
	b.restart("w3")
	if j = b.accept(ask("t1", "hi", 10)); cancelledFacts(j) != 1 {
		t.Errorf("the turn does not know that it was cancelled")
	}
	if got := b.done(); !slices.Equal(got, []int64{20}) {
		t.Errorf("offsets done %v", got)
	}
}

func TestCancel_DoesNothingToATurnThatHasEnded(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	stopped := 0
	j.OnCancel(func() { stopped++ })
	b.add(j, ended(schemas.StatusCompleted))
	for offset, prepare := range []func(){func() {}, j.Close, func() { b.commit() }, func() { b.commit(); b.restart("w2") }} {
		prepare()
		if err := b.cancel("s1", int64(20+offset)); err != nil {
			t.Fatalf("Cancel: %v", err)
		}
	}
	b.commit()
	if stopped != 0 {
		t.Errorf("the ended turn was stopped")
	}
	if got := b.done(); !slices.Equal(got, []int64{10, 20, 21, 22, 23}) {
		t.Errorf("offsets done %v", got)
	}
	if got := b.committedKeys(); !slices.Equal(got, []string{"hs1/00000000/0000", "tt1"}) {
		t.Errorf("the state holds %q", got)
	}
	b.checkEvents()
	if len(b.outputs) != 2 {
		t.Errorf("events %q", b.ids())
	}
}

func TestCancel_IsRefusedFromAnotherSession(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	stopped := 0
	j.OnCancel(func() { stopped++ })
	for _, when := range []string{"while it runs", "while it waits"} {
		if err := b.cancel("s2", 20); codeOf(err) != schemas.CodeInvalidTurn {
			t.Errorf("%s: Cancel gives %v, want invalid_turn", when, err)
		}
		j.Close()
	}
	b.commit()
	if len(b.done()) != 0 || stopped != 0 {
		t.Errorf("offsets done %v, stopped %d times", b.done(), stopped)
	}
}

// A cancel in the name of another session came first, and the right one was forgotten or overwritten.
func TestCancel_FromAnotherSessionLeavesTheRightOneAlone(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{"the wrong one first": {"s2", "s1"}, "the wrong one last": {"s1", "s2"}, "only the wrong one": {"s2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			for i, session := range order {
				if err := b.cancel(session, int64(i)); err != nil {
					t.Fatalf("Cancel: %v", err)
				}
			}
			b.commit()
			want := map[bool]int{true: 1, false: 0}[slices.Contains(order, "s1")]
			if n := cancelledFacts(b.accept(ask("t1", "hi", 11))); n != want {
				t.Errorf("the turn knows %d cancels, want %d", n, want)
			}
		})
	}
}

func TestCancel_ThatIsTooLargeIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *Config) { c.RecordBytes = 3000 })
	ev := cancelOf("s1")
	ev.Reason = strings.Repeat("x", 2970)
	if err := b.store.Cancel(ev, 10); codeOf(err) != schemas.CodeTooLarge {
		t.Errorf("of a turn to come: Cancel gives %v, want too_large", err)
	}
	b.accept(ask("t1", "hi", 11))
	ev.Reason = strings.Repeat("x", 3000)
	if err := b.store.Cancel(ev, 12); codeOf(err) != schemas.CodeTooLarge {
		t.Errorf("of a turn that runs: Cancel gives %v, want too_large", err)
	}
	b.commit()
	if len(b.done()) != 0 {
		t.Errorf("offsets done %v", b.done())
	}
}

// A cancel that races the end of its turn used to append to the journal that the end had dropped, and left it in the state for
// ever.
func TestCancel_LeavesNothingBehindWhenItRacesTheEnd(t *testing.T) {
	t.Parallel()
	for range 200 {
		b := newBed(t)
		j := b.accept(ask("t1", "hi", 10))
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.cancel("s1", 20); err != nil {
				t.Errorf("Cancel: %v", err)
			}
		})
		wg.Go(func() {
			b.add(j, responded(0))
			b.add(j, ended(schemas.StatusCompleted))
			j.Close()
		})
		wg.Go(func() { b.commit() })
		wg.Wait()
		b.commit()
		if got := b.committedKeys(); !slices.Equal(got, []string{"hs1/00000000/0000", "tt1"}) {
			t.Fatalf("the state holds %q", got)
		}
	}
}
