package dedupe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// benchmarkTurn records a turn of four responses and three calls; between is called after each step.
func benchmarkTurn(b *bed, id string, offset int64, tool fact.Tool, between func()) {
	b.t.Helper()
	j := b.accept(ask(id, "hi", offset))
	for step := range 3 {
		c := call(tool, step, 0, `{"n":1}`)
		r := responded(step, `{"n":1}`)
		if tool.Changes() {
			r.Wave = []fact.Call{c}
			b.waitCommitted(func(ctx context.Context) error { return j.Commit(ctx, r) })
		} else {
			b.add(j, r)
			b.add(j, began(c))
		}
		b.add(j, finished(c, `{"ok":true}`))
		between()
	}
	b.add(j, responded(3))
	b.add(j, ended(schemas.StatusCompleted))
	j.Close()
	b.commit()
}

func TestJournal_WritesTwelveEventsAndFewRecordsForATurnOfFourResponsesAndThreeCalls(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		tool    fact.Tool
		between bool
		want    []string // the changelog records of the second turn
	}{
		{"that reads, in one cycle", lookup(), false, []string{"hs1/00000001/0000", "tt2"}},
		{"that writes, in a cycle for each step", charge(), false, []string{
			"-jt2/00000000", "-jt2/00000001", "-jt2/00000002", "hs1/00000001/0000", "jt2/00000000", "jt2/00000001", "jt2/00000002", "tt2",
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			benchmarkTurn(b, "t1", 10, tc.tool, func() {})
			if got := keys(b.records); !slices.Contains(got, "a") || len(got) != len(tc.want)+1 {
				t.Errorf("the first turn writes %q, want the agent and %d", got, len(tc.want))
			}
			b.records, b.outputs = nil, nil
			benchmarkTurn(b, "t2", 11, tc.tool, func() {})
			if got := keys(b.records); !slices.Equal(got, tc.want) {
				t.Errorf("changelog records %q, want %q", got, tc.want)
			}
			if len(b.outputs) != 12 {
				t.Errorf("%d events, want 12: %q", len(b.outputs), b.ids())
			}
			if got := b.done(); !slices.Equal(got, []int64{10, 11}) {
				t.Errorf("offsets done %v", got)
			}
			b.checkEvents()
		})
	}
}

// A cycle that is aborted again and again changes nothing about what is written in the end.
func TestJournal_WritesTheSameAfterAbortedCycles(t *testing.T) {
	t.Parallel()
	plain, aborted := newBed(t), newBed(t)
	benchmarkTurn(plain, "t1", 10, lookup(), func() {})
	benchmarkTurn(aborted, "t1", 10, lookup(), aborted.abort)
	if got, want := aborted.ids(), plain.ids(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if got, want := keys(aborted.records), keys(plain.records); !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
}

func TestCommit_ReturnsWhenTheFactsAreDurable(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	done := make(chan error, 1)
	go func() { done <- j.Commit(t.Context(), responded(0, `{}`)) }()
	<-b.wake
	b.abort()
	select {
	case err := <-done:
		t.Fatalf("Commit returned %v before its cycle committed", err)
	default:
	}
	b.commit()
	if err := <-done; err != nil {
		t.Errorf("Commit: %v", err)
	}
	if got := b.ids(); !slices.Equal(got, []string{"t1/turn:start", "t1/turn:step/0"}) {
		t.Errorf("events %q", got)
	}
}

func TestCommit_SaysThatThePartitionIsGone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	done := make(chan error, 1)
	go func() { done <- j.Commit(t.Context(), responded(0, `{}`)) }()
	<-b.wake
	b.part.Detach()
	if err := <-done; !errors.Is(err, statestore.ErrGone) {
		t.Errorf("Commit gives %v, want ErrGone", err)
	}
	if err := j.Add(responded(1, `{}`)); !errors.Is(err, statestore.ErrGone) {
		t.Errorf("Add gives %v, want ErrGone", err)
	}
}

func TestCommit_ReturnsTheCauseWhenItsContextEndsAndRecordsAllTheSame(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if err := j.Commit(ctx, responded(0, `{}`)); !errors.Is(err, stopped) {
		t.Errorf("Commit gives %v, want the cause", err)
	}
	b.commit()
	if got := b.ids(); !slices.Equal(got, []string{"t1/turn:start", "t1/turn:step/0"}) {
		t.Errorf("events %q", got)
	}
}

// Facts of calls that run side by side are recorded from several goroutines: seq follows the order of the effects.
func TestAdd_KeepsSeqInTheOrderOfTheEffects(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	b.add(j, responded(0, `{}`, `{}`, `{}`, `{}`, `{}`, `{}`))
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			c := call(lookup(), 0, i, `{}`)
			if err := errors.Join(j.Add(began(c)), j.Add(finished(c, `1`))); err != nil {
				t.Errorf("Add: %v", err)
			}
		})
	}
	wg.Wait()
	b.commit()
	b.checkEvents()
	if len(b.outputs) != 14 {
		t.Errorf("%d events, want 14", len(b.outputs))
	}
	b.restart("w2")
	if n := len(b.accept(ask("t1", "hi", 10)).Frames()); n != 14 {
		t.Errorf("%d facts are recorded, want 14", n)
	}
}

// A fact that would not fit a record is refused, and the turn goes on as if nobody had tried.
func TestAdd_RefusesWhatDoesNotFitARecordAndLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *Config) { c.RecordBytes = 3000 })
	j := b.accept(ask("t1", "hi", 10))
	c := call(lookup(), 0, 0, `{}`)
	b.add(j, responded(0, `{}`), began(c))
	large := `"` + strings.Repeat("x", 4000) + `"`
	if err := j.Add(finished(c, `1`), finished(c, large)); codeOf(err) != schemas.CodeLimitExceeded {
		t.Errorf("Add gives %v, want limit_exceeded", err)
	}
	if err := j.Commit(t.Context(), finished(c, large)); codeOf(err) != schemas.CodeLimitExceeded {
		t.Errorf("Commit gives %v, want limit_exceeded", err)
	}
	opaque := responded(1)
	opaque.Opaque = []byte(large) // It is in no event, but in the journal.
	if err := j.Add(opaque); codeOf(err) != schemas.CodeLimitExceeded {
		t.Errorf("Add of a large fact gives %v, want limit_exceeded", err)
	}
	end := ended(schemas.StatusCompleted)
	end.Output = []byte(large)
	if err := j.Add(end); codeOf(err) != schemas.CodeLimitExceeded || j.End() != nil {
		t.Errorf("Add of a large end gives %v, want limit_exceeded", err)
	}
	b.add(j, finished(c, `2`), responded(1))
	b.add(j, ended(schemas.StatusCompleted))
	j.Close()
	b.commit()
	b.checkEvents()
	if len(b.outputs) != 6 {
		t.Errorf("%d events, want 6: %q", len(b.outputs), b.ids())
	}
	history := b.accept(ask("t2", "hi", 11)).History()
	if len(history) != 4 || history[2].Text != "2" {
		t.Errorf("the history is %+v", history)
	}
}

func TestAdd_RefusesFactsAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	b.add(j, ended(schemas.StatusCompleted))
	if err := j.Add(responded(0)); err == nil {
		t.Errorf("Add after the end has no error")
	}
	if j.End() == nil || j.End().Status != schemas.StatusCompleted {
		t.Errorf("End = %+v", j.End())
	}
	b.commit()
	if got := b.committedKeys(); !slices.Equal(got, []string{"hs1/00000000/0000", "tt1"}) {
		t.Errorf("the state holds %q", got)
	}
}

// The facts of one cycle that do not fit one record are several, and are read as if they were one.
func TestJournal_IsSplitAtTheRecordLimitAndReadWhole(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *Config) { c.RecordBytes = 2000 })
	j := b.accept(ask("t1", "hi", 10))
	b.add(j, responded(0, `{}`, `{}`, `{}`, `{}`, `{}`, `{}`, `{}`, `{}`))
	for i := range 8 {
		b.add(j, finished(call(lookup(), 0, i, `{}`), `"`+strings.Repeat("x", 700)+`"`))
	}
	records, _ := b.commit()
	journal := 0
	for _, r := range records {
		if len(r.Value) > 2000 {
			t.Errorf("%s has %d bytes", r.Key, len(r.Value))
		}
		if r.Key[0] == 'j' {
			journal++
		}
	}
	if journal < 4 {
		t.Errorf("the journal has %d records", journal)
	}
	b.restart("w2")
	j = b.accept(ask("t1", "hi", 10))
	if n := len(j.Frames()); n != 10 {
		t.Errorf("%d facts are read, want 10", n)
	}
	b.add(j, responded(1), ended(schemas.StatusCompleted))
	b.commit()
	b.checkEvents()
	for _, key := range b.committedKeys() {
		if key[0] == 'j' {
			t.Errorf("the journal record %s is left", key)
		}
	}
}

// Turns of many sessions run side by side in one store while cycles commit, abort, and the worker is restarted; every turn has
// its events once, in order.
func TestStore_KeepsManyTurnsApart(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for round := range 3 {
		var wg sync.WaitGroup
		for lane := range 6 {
			wg.Go(func() {
				for n := range 5 {
					if err := shortTurn(b, fmt.Sprintf("s%d", lane), fmt.Sprintf("t%d-%d", lane, n), int64(lane*100+n)); err != nil {
						t.Errorf("lane %d, turn %d: %v", lane, n, err)
					}
				}
			})
		}
		finished := make(chan struct{})
		go func() {
			wg.Wait()
			close(finished)
		}()
		for running := true; running; {
			select {
			case <-finished:
				running = false
			default:
				b.abort()
				b.commit()
			}
		}
		b.commit()
		b.restart(fmt.Sprint("w", round+2))
	}
	b.checkEvents()
	if want := 6 * 5 * 5; len(b.outputs) != want {
		t.Errorf("%d events, want %d", len(b.outputs), want)
	}
	if n := len(b.store.mu.turns); n != 0 {
		t.Errorf("%d turns are left in use", n)
	}
}

func shortTurn(b *bed, session, id string, offset int64) error {
	j, err := b.store.Accept(askIn(session, id, "hi", offset))
	if err != nil || j == nil {
		return err
	}
	defer j.Close()
	c := call(charge(), 0, 0, `{}`)
	r := responded(0, `{}`)
	r.Wave = []fact.Call{c}
	return errors.Join(j.Add(r), j.Add(finished(c, `1`)), j.Add(ended(schemas.StatusCompleted)))
}

func TestSetTrace_PutsTheTraceContextOnEveryEvent(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	in := ask("t1", "hi", 10)
	in.Trace, in.TraceState = "00-producer", "a=b"
	j := b.accept(in)
	j.SetTrace("00-worker", "")
	b.add(j, responded(0))
	b.commit()
	for i, want := range []string{"traceparent=00-producer tracestate=a=b ", "traceparent=00-worker "} {
		var got strings.Builder
		for _, h := range b.outputs[i].Headers {
			if strings.HasPrefix(h.Key, "trace") {
				fmt.Fprintf(&got, "%s=%s ", h.Key, h.Value)
			}
		}
		if got.String() != want {
			t.Errorf("event %d has %q, want %q", i, got.String(), want)
		}
	}
}
