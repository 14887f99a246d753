package turn

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// ledger is what is stored of a turn over all its workers: effects, each of frames in their stored form.
type ledger struct {
	codec   *fact.Codec
	effects [][]byte
	seq     int64
	// committed is how many effects are certainly durable, because somebody waited for them.
	committed int
}

func newLedger(tb testing.TB) *ledger {
	tb.Helper()
	c, err := fact.NewCodec()
	if err != nil {
		tb.Fatal(err)
	}
	return &ledger{codec: c}
}

func (l *ledger) append(facts []fact.Fact) error {
	var b []byte
	var err error
	seq := l.seq
	for _, f := range facts {
		if b, err = l.codec.Frame(fact.Frame{Seq: seq, Fact: f}, onto(b)); err != nil {
			return err
		}
		seq += f.Events()
	}
	l.effects, l.seq = append(l.effects, b), seq
	return nil
}

// frames are the stored facts, read back.
func (l *ledger) frames(tb testing.TB) []fact.Frame {
	tb.Helper()
	var out []fact.Frame
	for _, e := range l.effects {
		frames, err := l.codec.Frames(e)
		if err != nil {
			tb.Fatalf("Frames: %v", err)
		}
		out = append(out, frames...)
	}
	return out
}

func (l *ledger) ended(tb testing.TB) *fact.Ended {
	tb.Helper()
	frames := l.frames(tb)
	if len(frames) == 0 {
		return nil
	}
	e, _ := frames[len(frames)-1].Fact.(*fact.Ended)
	return e
}

// lose drops the effects that the next worker does not find.
func (l *ledger) lose(tb testing.TB, kept int) {
	tb.Helper()
	l.effects = l.effects[:kept]
	l.committed = kept
	l.seq = 0
	for _, f := range l.frames(tb) {
		l.seq = f.Seq + f.Fact.Events()
	}
}

// journal is one worker's journal of the turn. The fault, if any, happens at write number faultAt, counted from 1.
type journal struct {
	world  *world
	ledger *ledger
	// latency is how long a commit takes.
	latency time.Duration
	// faultAt is the number of the write at which the fault happens.
	faultAt int
	fault   fault
	// refuse refuses facts with limit_exceeded, as a journal does whose record limit they pass.
	refuse func(fact.Fact) bool

	mu     sync.Mutex
	writes int
	dead   bool
}

// fault is what happens at a write.
type fault struct {
	name string
	// stored says that the write is stored all the same.
	stored bool
	// dead says that the worker can't write any more: it was killed, or lost the partition.
	dead bool
	// hangs says that the write never returns, until its context ends.
	hangs bool
	// then is called with the write done.
	then func()
}

// Add implements Journal.
func (j *journal) Add(facts ...fact.Fact) error {
	_, err := j.write("add", facts)
	return err
}

// Commit implements Journal.
func (j *journal) Commit(ctx context.Context, facts ...fact.Fact) error {
	hangs, err := j.write("commit", facts)
	if err != nil {
		return err
	}
	if hangs {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	timer := time.NewTimer(j.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dead {
		return errGone
	}
	j.ledger.committed = max(j.ledger.committed, len(j.ledger.effects))
	return nil
}

func (j *journal) write(how string, facts []fact.Fact) (hangs bool, err error) {
	j.mu.Lock()
	if j.dead {
		j.mu.Unlock()
		return false, errGone
	}
	for _, f := range facts {
		if j.refuse != nil && j.refuse(f) {
			j.mu.Unlock()
			j.world.note(nil, "%s refused: %s", how, showFacts(facts))
			return false, schemas.Errorf(schemas.CodeLimitExceeded, "it is too large")
		}
	}
	j.writes++
	hit := j.fault.name != "" && j.writes == j.faultAt
	if !hit || j.fault.stored {
		err = j.ledger.append(facts)
		j.world.note(oneCall(facts), "%s: %s", how, showFacts(facts))
	}
	if hit {
		j.dead, hangs = j.fault.dead, j.fault.hangs
		if j.dead {
			err = errGone
		}
	}
	j.mu.Unlock()
	if hit && j.fault.then != nil {
		j.fault.then()
	}
	return hangs, err
}

// oneCall is the call that the facts are about, when it is one.
func oneCall(facts []fact.Fact) *fact.Ref {
	if len(facts) != 1 {
		return nil
	}
	switch f := facts[0].(type) {
	case *fact.Finished:
		return &f.Ref
	case *fact.Began:
		if len(f.Calls) == 1 {
			return &f.Calls[0].Ref
		}
	case *fact.Accepted, *fact.Responded, *fact.NotBegun, *fact.Cancelled, *fact.Restarted, *fact.Ended:
	}
	return nil
}

func showFacts(facts []fact.Fact) string {
	out := make([]string, len(facts))
	for i, f := range facts {
		out[i] = showFact(f)
	}
	return strings.Join(out, "; ")
}

func showFact(f fact.Fact) string {
	switch f := f.(type) {
	case *fact.Accepted:
		return "accepted"
	case *fact.Responded:
		parts := []string{fmt.Sprintf("responded %d %s %q", f.Step, f.FinishReason, f.Text)}
		for _, c := range f.Calls {
			parts = append(parts, c.Name)
		}
		if len(f.Wave) > 0 {
			parts = append(parts, "wave", showCalls(f.Wave))
		}
		return strings.Join(parts, " ")
	case *fact.Began:
		if f.Again {
			return "began again " + showCalls(f.Calls)
		}
		return "began " + showCalls(f.Calls)
	case *fact.NotBegun:
		parts := []string{"not begun"}
		for _, r := range f.Calls {
			parts = append(parts, at(r))
		}
		return strings.Join(parts, " ")
	case *fact.Finished:
		return "finished " + at(f.Ref) + " " + showResult(&f.Result)
	case *fact.Cancelled:
		return "cancelled"
	case *fact.Restarted:
		return fmt.Sprintf("restarted %d", f.Start)
	case *fact.Ended:
		return "ended " + showEnd(f)
	}
	return "?"
}

func showCalls(calls []fact.Call) string {
	parts := make([]string, len(calls))
	for i, c := range calls {
		parts[i] = at(c.Ref)
	}
	return strings.Join(parts, " ")
}

func showResult(r *fact.Result) string {
	s := r.Tool.Name + " " + r.Status
	if r.Code != "" {
		s += " " + string(r.Code)
	}
	if r.Message != "" {
		s += fmt.Sprintf(" %q", r.Message)
	}
	if r.Output != nil {
		s += " " + string(r.Output)
	}
	if !r.Started {
		s += " (no start)"
	}
	return s
}

func showEnd(f *fact.Ended) string {
	s := f.Status
	if f.Code != "" {
		s += " " + string(f.Code)
	}
	if f.Message != "" {
		s += fmt.Sprintf(" %q", f.Message)
	}
	if f.Output != nil {
		s += " " + string(f.Output)
	}
	s += fmt.Sprintf(" steps=%d calls=%d in=%d out=%d", f.Steps, f.ToolCalls, f.Usage.InputTokens, f.Usage.OutputTokens)
	if f.CostMicros != nil {
		s += fmt.Sprintf(" cost=%d", *f.CostMicros)
	}
	return s
}

func showMessages(ms []fact.Message) string {
	out := make([]string, len(ms))
	for i, m := range ms {
		out[i] = string(m.Role)
		if m.Failed {
			out[i] += " failed"
		}
		if m.CallID != "" {
			out[i] += " " + m.CallID
		}
		if m.Text != "" {
			text := m.Text
			if len(text) > 90 {
				text = text[:90] + "..."
			}
			out[i] += fmt.Sprintf(" %q", text)
		}
		for _, c := range m.Calls {
			out[i] += " " + c.Name + string(c.Arguments)
		}
	}
	return strings.Join(out, " | ")
}

// onto gives room behind b.
func onto(b []byte) func(int) []byte { return func(n int) []byte { return slices.Grow(b, n) } }
