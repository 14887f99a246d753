package turn

import (
	"bytes"
	"fmt"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// plan is what there is to do for the calls of one step.
type plan struct {
	step int
	// ready are the calls that have to run, in order; next takes from it.
	ready []*callState
	// wave is what has started and is to run now.
	wave []*callState
	// refused are new results of calls that cannot run; they are recorded with the response.
	refused []*callState
	// waves says that a call of the step can change something.
	waves bool
	// over says that the response asks for more calls than the turn has left, so that none of them runs.
	over bool
	// few is room for ready.
	few [4]*callState
}

// next takes the calls of the next wave.
func (p *plan) next(parallel int) []*callState {
	n := min(parallel, len(p.ready))
	wave := p.ready[:n]
	p.ready = p.ready[n:]
	return wave
}

// newPlan prepares the calls of a new response.
func (r *run) newPlan(resp *fact.Response) *plan {
	r.plan = plan{step: resp.Step} // The last one is done with, and nobody else has seen it.
	p := &r.plan
	p.ready = p.few[:0]
	for i, asked := range resp.Calls {
		ref := fact.Ref{Step: resp.Step, Position: i}
		c := r.known.call(ref)
		if c.call, c.result = r.offer.Prepare(asked, ref); c.result == nil {
			c.result = r.repeated(c.call)
		}
		if c.result != nil {
			p.refused = append(p.refused, c)
			continue
		}
		p.add(c)
	}
	p.over = r.pastCallLimit(resp)
	return p
}

func (p *plan) add(c *callState) {
	p.ready = append(p.ready, c)
	p.waves = p.waves || c.call.Tool.Changes()
}

// pastCallLimit reports whether a response asks for more calls than the turn has left.
func (r *run) pastCallLimit(resp *fact.Response) bool {
	total := len(resp.Calls)
	for _, earlier := range r.known.responses[:min(resp.Step, len(r.known.responses))] {
		total += len(earlier.Calls)
	}
	return total > r.turn.Agent.Limits.Calls
}

// repeated refuses a call with the same tool and arguments as one whose outcome is unknown, where the agent goes on after
// such an outcome.
func (r *run) repeated(call *fact.Call) *fact.Result {
	if !r.turn.Agent.ContinueOnUnknown {
		return nil
	}
	for _, c := range r.known.calls {
		if c.call != nil && c.result != nil && c.result.InDoubt() && c.call.Tool.Name == call.Tool.Name && bytes.Equal(c.call.Input, call.Input) {
			return &fact.Result{
				Ref: call.Ref, CallID: call.CallID, Tool: call.Tool, Status: schemas.StatusDenied, Code: schemas.CodeRepeatRefused,
				Message: fmt.Sprintf("the outcome of the same call of %s in this turn is unknown; it is not run again", call.Tool.Name),
			}
		}
	}
	return nil
}

// resumePlan decides what is left to do for the calls of a recorded response. What was recorded of a call decides, not
// today's definition; where today's differs, nothing runs.
func (r *run) resumePlan(resp *fact.Response) (*plan, error) {
	p := &plan{step: resp.Step}
	p.over = r.pastCallLimit(resp)
	for i, asked := range resp.Calls {
		ref := fact.Ref{Step: resp.Step, Position: i}
		c := r.known.call(ref)
		now, refusal := r.offer.Prepare(asked, ref)
		if (c.started || c.result != nil && c.result.Started) && !same(c, now) {
			return nil, schemas.Errorf(schemas.CodeReplayInputChanged, "call %s is recorded with another tool, version, schema, description or arguments than it has now", ref.Key(r.turn.Accepted.TurnID))
		}
		if err := r.resumeCall(p, c, now, refusal); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (r *run) resumeCall(p *plan, c *callState, now *fact.Call, refusal *fact.Result) error {
	switch {
	case c.result != nil:
		if c.call == nil {
			c.call = now
		}
		return nil
	case c.inDoubt && c.call.Tool.Idempotency == schemas.AtMostOnce:
		return r.finish(c, r.finished(resultOf(c, schemas.StatusIndeterminate, schemas.CodeIndeterminate, "a worker stopped while the call ran; it is not run again")))
	case c.started:
		p.add(c)
		return nil
	case p.over:
		c.call = now
		return nil
	}
	if c.call = now; refusal == nil {
		refusal = r.repeated(now)
	}
	if refusal != nil {
		return r.finish(c, r.finished(refusal))
	}
	p.add(c)
	return nil
}
