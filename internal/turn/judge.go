package turn

import (
	"fmt"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// judge looks at the results of a step and says whether they end the turn.
func (r *run) judge(step int) *verdict {
	results := r.known.results(step)
	if res := r.inDoubt(results); res != nil {
		return &verdict{status: res.Status, code: res.Code, message: fmt.Sprintf("call %s of %s: %s", res.Key(r.turn.Accepted.TurnID), res.Tool.Name, res.Message)}
	}
	for _, res := range results {
		if res.Status == schemas.StatusError && r.turn.Agent.FailOnToolError {
			return failed(schemas.CodeToolFailed, "call %s of %s: %s", res.Key(r.turn.Accepted.TurnID), res.Tool.Name, res.Message)
		}
	}
	return r.failures(step)
}

// inDoubt is the one of a step's results that ends the turn because it may hide an effect, or nil.
func (r *run) inDoubt(results []*fact.Result) (doubt *fact.Result) {
	if r.turn.Agent.ContinueOnUnknown {
		return nil
	}
	for _, res := range results {
		doubt = graver(doubt, res)
	}
	return doubt
}

// graver is the one of two results that says more of what may have happened; the first when they say the same. Nil says nothing.
func graver(a, b *fact.Result) *fact.Result {
	if b != nil && b.InDoubt() && (a == nil || gravity(b.Status) > gravity(a.Status)) {
		return b
	}
	return a
}

// gravity ranks statuses: that a worker died while a call ran comes before that a call failed.
func gravity(status string) int {
	switch status {
	case schemas.StatusIndeterminate:
		return 2
	case schemas.StatusOutcomeUnknown:
		return 1
	}
	return 0
}

// failures is the verdict when a tool failed too often in a row. It is counted over the recorded results in the order the
// model asked for them, so that a resumed turn counts the same.
func (r *run) failures(last int) *verdict {
	inARow := make(map[string]int)
	for step := range last + 1 {
		for _, res := range r.known.results(step) {
			if res.OK() {
				inARow[res.Tool.Name] = 0
				continue
			}
			inARow[res.Tool.Name]++
			if limit := r.turn.Agent.Limits.Failures; inARow[res.Tool.Name] >= limit && step == last {
				return r.limit("consecutive_failures of "+res.Tool.Name, limit)
			}
		}
	}
	return nil
}

// closeCalls gives every call without a finish one, so that the transcript of an ended turn is whole. It returns the facts,
// and the gravest result that may hide an effect: of these calls, or of a step that nobody had judged yet.
func (r *run) closeCalls(v *verdict) (facts []fact.Fact, doubt *fact.Result) {
	if last := len(r.known.responses) - 1; last >= 0 {
		doubt = r.inDoubt(r.known.results(last))
	}
	for step, resp := range r.known.responses {
		for i, asked := range resp.Calls {
			c := r.known.call(fact.Ref{Step: step, Position: i})
			if c.result == nil {
				c.result = closing(c, asked, fact.Ref{Step: step, Position: i}, v)
				facts = append(facts, r.finished(c.result))
				doubt = graver(doubt, c.result)
			}
		}
	}
	return facts, doubt
}

// closing is the result of a call whose turn ends first: skipped when it certainly did not begin, an error when it only
// reads, else an outcome that nobody knows.
func closing(c *callState, asked fact.Asked, ref fact.Ref, v *verdict) *fact.Result {
	code := v.code
	if code == "" {
		code = schemas.CodeNotBegun
	}
	switch {
	case c.call == nil:
		return &fact.Result{Ref: ref, CallID: asked.CallID, Tool: fact.Tool{Name: asked.Name}, Status: schemas.StatusSkipped, Code: code, Message: "the turn ended before the call began"}
	case !c.begun && !c.inDoubt:
		return resultOf(c, schemas.StatusSkipped, code, "the turn ended before the call began")
	case c.inDoubt && !c.begun && c.call.Tool.Idempotency == schemas.AtMostOnce:
		return resultOf(c, schemas.StatusIndeterminate, schemas.CodeIndeterminate, "a worker stopped while the call ran; it is not run again")
	case c.call.Tool.Effect == schemas.EffectWrite || c.call.Tool.Effect == schemas.EffectHost:
		return resultOf(c, schemas.StatusOutcomeUnknown, code, "the turn ended while the call ran")
	}
	return resultOf(c, schemas.StatusError, code, "the turn ended while the call ran")
}
