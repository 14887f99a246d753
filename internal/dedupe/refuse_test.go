package dedupe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// lastEffect is the last effect of a journal that waits.
func (b *bed) lastEffect(j *Journal) *statestore.Effect {
	b.t.Helper()
	batch, err := b.part.Take(1<<30, 1<<30)
	if err != nil || batch == nil {
		b.t.Fatalf("Take: %v, %v", batch, err)
	}
	for _, o := range slices.Backward(batch.Outputs) {
		if e := batch.EffectOfOutput(o); e.Owner == j {
			return e
		}
	}
	b.t.Fatalf("turn %s has no effect with an output", j.accepted.TurnID)
	return nil
}

func (b *bed) refuse(j *Journal) Refused {
	b.t.Helper()
	r, err := b.store.Refuse(b.lastEffect(j))
	if err != nil {
		b.t.Fatalf("Refuse: %v", err)
	}
	return r
}

func turnIDs(js []*Journal) (out []string) {
	for _, j := range js {
		out = append(out, j.accepted.TurnID)
	}
	return out
}

// whole is a turn that has run and ended.
func (b *bed) whole(in *Input) *Journal {
	b.t.Helper()
	in.Run = in.Event.TurnID
	j := b.accept(in)
	b.add(j, responded(0))
	b.add(j, ended(schemas.StatusCompleted))
	j.Close()
	return j
}

// A turn has ended and waits for its commit, and later turns have gone on from what it said, when the broker refuses one of its
// records. Those begin again; earlier turns, and those of other sessions, do not notice.
func TestRefuse_DropsTheTurnAndThoseThatHaveReadIt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.whole(ask("t0", "zero", 10))
	bad := b.whole(ask("t1", "one", 11))
	b.whole(askIn("other", "o1", "hi", 12))
	b.whole(ask("t2", "two", 13))
	running := b.accept(ask("t3", "three", 14))
	stopped := 0
	running.OnDrop(func() { stopped++ })

	r := b.refuse(bad)
	if r.Turn != bad || r.Unborn || bad.Run() != "t1" || !slices.Equal(turnIDs(r.Again), []string{"t2", "t3"}) || stopped != 1 {
		t.Errorf("refused %+v, stopped %d", r, stopped)
	}
	if err := running.Add(responded(0)); !errors.Is(err, statestore.ErrDropped) {
		t.Errorf("a dropped turn goes on: %v", err)
	}
	running.Close()
	b.commit()
	if got := b.ids(); !slices.Equal(got, []string{"t0/turn:start", "t0/turn:step/0", "t0/turn:end", "o1/turn:start", "o1/turn:step/0", "o1/turn:end"}) {
		t.Errorf("events %q", got)
	}

	in := ask("t1", "one", 11)
	in.Thrift = ThriftSmall
	j := b.accept(in)
	if j.Resumed() || len(j.Frames()) != 0 {
		t.Errorf("the turn is known although nothing of it was committed")
	}
	b.add(j, ended(schemas.StatusFailed))
	j.Close()
	for offset, id := range []string{"t2", "t3"} {
		j := b.accept(ask(id, map[string]string{"t2": "two", "t3": "three"}[id], int64(13+offset)))
		if n := len(j.History()); n != 3+offset*2 { // Each turn has a question, and an answer unless it failed.
			t.Errorf("%s has %d messages of history", id, n)
		}
		b.add(j, responded(0))
		b.add(j, ended(schemas.StatusCompleted))
		j.Close()
	}
	b.commit()
	b.checkEvents()
	if got := slices.Sorted(slices.Values(b.done())); !slices.Equal(got, []int64{10, 11, 12, 13, 14}) {
		t.Errorf("offsets done %v", got)
	}
}

// What a turn has committed stands: it is resumed from there, with the seq that comes next.
func TestRefuse_LeavesWhatTheTurnHasCommitted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	write := call(charge(), 0, 0, `{}`)
	asked := responded(0, `{}`)
	asked.Wave = []fact.Call{write}
	b.add(j, asked)
	b.commit()
	b.add(j, finished(write, strings.Repeat("1", 500)))
	r := b.refuse(j)
	if r.Turn != j || r.Unborn {
		t.Errorf("refused %+v", r)
	}
	j.Close()
	in := ask("t1", "hi", 10)
	in.Thrift = ThriftSmall
	again := b.accept(in)
	if !again.Resumed() || len(again.Frames()) != 2 {
		t.Errorf("%d facts stand, want 2", len(again.Frames()))
	}
	closed := finished(write, "")
	closed.Output, closed.Status, closed.Code = nil, schemas.StatusOutcomeUnknown, schemas.CodeLimitExceeded
	b.add(again, closed, ended(schemas.StatusFailed))
	b.commit()
	b.checkEvents()
	if got := b.ids(); !slices.Equal(got, []string{"t1/turn:start", "t1/turn:step/0", "t1/tool:start/0/0", "t1/tool:result/0/0", "t1/turn:end"}) {
		t.Errorf("events %q", got)
	}
}

// The turn cannot begin when what accepts it is refused. Its agent's configuration, which others use, is not dropped with it.
func TestRefuse_OfWhatAcceptsATurn(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	r := b.refuse(j)
	if !r.Unborn || r.Turn != j {
		t.Errorf("refused %+v", r)
	}
	j.Close()
	if records, outputs := b.commit(); len(outputs) != 0 || !slices.Equal(keys(records), []string{"a"}) {
		t.Errorf("wrote %q and %d outputs, want the configuration alone", keys(records), len(outputs))
	}
	if r, err := b.store.Refuse(j.first); err != nil || r.Turn != nil || len(r.Again) != 0 {
		t.Errorf("what is dropped is refused again: %+v, %v", r, err)
	}
}

// Each time that the end of a turn is refused there is less in it; when nothing is left to leave out, that is an error.
func TestRefuse_EndsWithAnError(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for thrift := ThriftNone; ; thrift++ {
		in := ask("t1", "hi", 10)
		in.Thrift = thrift
		j := b.accept(in)
		end := ended(schemas.StatusFailed)
		end.Message = strings.Repeat("ü", 1000)
		b.add(j, end)
		j.Close()
		effect := b.lastEffect(j)
		size := 0
		for _, m := range effect.Mutations {
			size = max(size, len(m.Value))
		}
		ev := decode(t, &effect.Outputs[0])
		if bare := thrift == ThriftBare; bare != (len(effect.Outputs[0].Value) < 1000) || bare == strings.Contains(string(effect.Outputs[0].Value), "tenant") {
			t.Errorf("thrift %d: %s is %s", thrift, ev.ID, effect.Outputs[0].Value)
		}
		_, err := b.store.Refuse(effect)
		if (err != nil) != (thrift == ThriftBare) {
			t.Fatalf("thrift %d: %v", thrift, err)
		}
		if err != nil {
			return
		}
	}
}

func TestThrift_KeepsHistoryInSmallPartsOrNone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		thrift Thrift
		parts  int
	}{{ThriftNone, 1}, {ThriftSmall, 4}, {ThriftBare, 0}} {
		t.Run(fmt.Sprint(tc.thrift), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			in := ask("t1", "hi", 10)
			in.Thrift = tc.thrift
			j := b.accept(in)
			for step := range 4 {
				r := responded(step)
				r.Text = strings.Repeat("x", thriftyPart/2)
				b.add(j, r)
			}
			b.add(j, ended(schemas.StatusFailed))
			j.Close()
			records, _ := b.commit()
			parts := 0
			for _, r := range records {
				if r.Key[0] == 'h' {
					parts++
				}
			}
			if parts != tc.parts {
				t.Errorf("%d parts, want %d", parts, tc.parts)
			}
			if j := b.accept(ask("t2", "y", 11)); len(j.History()) != 5*min(1, tc.parts) {
				t.Errorf("the next turn reads %d messages", len(j.History()))
			}
		})
	}
}

// Cancel events have offsets of their own, which must not be lost with the effects that complete them; and a turn that begins again
// must still know that it was cancelled.
func TestRefuse_KeepsCancels(t *testing.T) {
	t.Parallel()
	cancel := func(b *bed, turn string, offset int64) {
		b.t.Helper()
		err := b.store.Cancel(&schemas.TurnEvent{Type: schemas.InputCancel, TurnID: turn, SessionID: "s1", Reason: "r"}, offset)
		if err != nil {
			b.t.Fatalf("Cancel(%s): %v", turn, err)
		}
	}
	for _, when := range []string{"before", "after"} {
		t.Run("the cancels come "+when, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			bad := b.accept(ask("t1", "one", 10))
			b.commit()
			b.add(bad, responded(0))
			next := ask("t2", "two", 11)
			next.Run = "t2"
			later := b.accept(next) // Its turn has not ended; this is about the journals alone.
			if when == "before" {
				cancel(b, "t1", 12)
				cancel(b, "t2", 13)
			}
			b.refuse(bad)
			if when == "after" {
				cancel(b, "t1", 12)
				cancel(b, "t2", 13)
			}
			bad.Close()
			later.Close()
			b.commit()
			if got := slices.Sorted(slices.Values(b.done())); !slices.Equal(got, []int64{12, 13}) {
				t.Errorf("offsets done %v, want those of the cancels", got)
			}
			if j := b.accept(ask("t2", "two", 11)); cancelledFacts(j) != 1 {
				t.Errorf("the turn that begins again knows %d cancels, want 1", cancelledFacts(j))
			}
		})
	}
}

func TestRefuse_OfARememberedCancelLeavesItsReasonOut(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if err := b.cancel("s1", 10); err != nil {
		t.Fatal(err)
	}
	refuse := func() error {
		batch, err := b.part.Take(1<<30, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.store.Refuse(batch.EffectOfRecord(0))
		return err
	}
	if err := refuse(); err != nil {
		t.Errorf("Refuse: %v", err)
	}
	if err := refuse(); err == nil {
		t.Error("a cancel without a reason is refused and there is no error")
	}
	b.commit()
	j := b.accept(ask("t1", "hi", 11))
	if c, ok := j.Frames()[1].Fact.(*fact.Cancelled); !ok || c.Reason != "" {
		t.Errorf("the turn knows %+v", j.Frames()[1].Fact)
	}
	if got := b.done(); !slices.Equal(got, []int64{10}) {
		t.Errorf("offsets done %v", got)
	}
}

// hookedEncoder calls before as an event is encoded: after the state was read, and before the effect is queued.
type hookedEncoder struct {
	schemas.Encoder

	before func()
}

func (e *hookedEncoder) EncodeTurn(ev *schemas.TurnOutput) ([]byte, error) {
	if f := e.before; f != nil {
		e.before = nil
		f()
	}
	return e.Encoder.EncodeTurn(ev)
}

// A turn is accepted while what it has read is dropped: it must read again.
func TestAccept_ReadsAgainWhatIsDroppedMeanwhile(t *testing.T) {
	t.Parallel()
	enc := &hookedEncoder{}
	b := newBed(t, func(c *Config) { enc.Encoder, c.TurnEncoder = c.TurnEncoder, enc })
	bad := b.whole(ask("t1", "one", 10))
	enc.before = func() { b.refuse(bad) }
	j := b.accept(ask("t2", "two", 11))
	if n := len(j.History()); n != 0 || enc.before != nil {
		t.Errorf("the turn has read %d messages of one that is dropped", n)
	}
	b.commit()
	b.checkEvents()
}
