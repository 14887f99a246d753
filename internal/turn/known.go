package turn

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// Known is what is recorded of a turn: what a resumed turn starts from, and what a running one adds to.
type Known struct {
	responses []*fact.Responded
	calls     map[fact.Ref]*callState
	cancelled *fact.Cancelled
	// workers are those that had a hand in the turn. They are few.
	workers []string
	// starts is how often the turn was started since it made progress, that start included. The first is known to none but the
	// worker that made it, so a turn of which nothing is recorded counts as started once.
	starts int

	// few is room for what most turns have, in one piece of memory.
	few struct {
		responses [8]*fact.Responded
		calls     [4]callState
		workers   [2]string
	}
}

// callState is what is recorded of one call. Its fields change in the turn's own goroutine, or in the one that runs the call.
type callState struct {
	// call is nil for a call that could not be prepared.
	call *fact.Call
	// started says that its tool:start is recorded; inDoubt that another process may have begun it.
	started, inDoubt bool
	// begun says that this process began it.
	begun  bool
	result *fact.Result
}

// NewKnown returns what a new turn knows: nothing.
func NewKnown() *Known {
	k := &Known{calls: make(map[fact.Ref]*callState), starts: 1}
	k.responses, k.workers = k.few.responses[:0], k.few.workers[:0]
	return k
}

// Replay returns what frames say of a turn. The first is its accepted fact, which the caller has.
func Replay(frames []fact.Frame) (*Known, error) {
	k := NewKnown()
	for _, f := range frames {
		if err := k.replay(f.Fact); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *Known) replay(f fact.Fact) error {
	if fact.Progress(f) {
		k.starts = 1
	}
	switch f := f.(type) {
	case *fact.Accepted:
		k.hand(f.Worker)
	case *fact.Responded:
		if f.Step != len(k.responses) {
			return fmt.Errorf("replay a response of step %d after %d steps", f.Step, len(k.responses))
		}
		k.responses = append(k.responses, f)
		k.hand(f.Worker)
		k.replayStart(f.Wave)
	case *fact.Began:
		k.hand(f.Worker)
		k.replayStart(f.Calls)
	case *fact.NotBegun:
		for _, ref := range f.Calls {
			if c := k.calls[ref]; c != nil {
				c.inDoubt = false
			}
		}
	case *fact.Finished:
		k.hand(f.Worker)
		k.call(f.Ref).result = &f.Result
	case *fact.Cancelled:
		k.cancelled = f
	case *fact.Restarted:
		k.hand(f.Worker)
		k.starts = f.Start
	case *fact.Ended:
		return errors.New("replay a turn that has ended")
	}
	return nil
}

// hand notes that a worker had a hand in the turn.
func (k *Known) hand(worker string) {
	if !slices.Contains(k.workers, worker) {
		k.workers = append(k.workers, worker)
	}
}

func (k *Known) replayStart(calls []fact.Call) {
	for i := range calls {
		c := k.call(calls[i].Ref)
		c.call, c.started, c.inDoubt = &calls[i], true, true
	}
}

// call returns the state of the call at ref, making it when it is new.
func (k *Known) call(ref fact.Ref) *callState {
	c := k.calls[ref]
	if c == nil {
		if n := len(k.calls); n < len(k.few.calls) {
			c = &k.few.calls[n]
		} else {
			c = &callState{}
		}
		k.calls[ref] = c
	}
	return c
}

// Cancelled reports whether a cancel event is recorded.
func (k *Known) Cancelled() bool { return k.cancelled != nil }

// results are the recorded results of a step's calls by position; nil where there is none.
func (k *Known) results(step int) []*fact.Result {
	out := make([]*fact.Result, len(k.responses[step].Calls))
	for i := range out {
		if c := k.calls[fact.Ref{Step: step, Position: i}]; c != nil {
			out[i] = c.result
		}
	}
	return out
}

// totals adds up what the turn used.
func (k *Known) totals() (usage schemas.Usage, cost *int64, calls int) {
	for _, r := range k.responses {
		usage.Add(r.Usage)
		calls += len(r.Calls)
		if r.CostMicros != nil {
			if cost == nil {
				cost = new(int64)
			}
			*cost += *r.CostMicros
		}
	}
	return usage, cost, calls
}

// lastText is the text of the last response, the partial output of a turn that ends early.
func (k *Known) lastText() string {
	for _, r := range slices.Backward(k.responses) {
		if r.Text != "" {
			return r.Text
		}
	}
	return ""
}

// duration is how long the turn has taken since it was accepted; never negative, whatever the clocks of two workers say.
func duration(from, to time.Time) time.Duration { return max(0, to.Sub(from)) }
