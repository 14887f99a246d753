package turn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// run is one turn being run, in the goroutine that called Run.
type run struct {
	loop  *Loop
	turn  *Turn
	known *Known
	offer Offer

	// plan is what there is to do for the calls of the step that runs.
	plan plan

	// messagesSaid are the session's history and the messages of the turn up to the end of stepsSaid steps, which take sizeSaid bytes;
	// the turn's own begin at ownSaid.
	messagesSaid []fact.Message
	ownSaid      int
	stepsSaid    int
	sizeSaid     int
}

// deadline is the earlier of the turn's own and the end of the time that its agent gives it.
func (r *run) deadline() time.Time {
	end := r.turn.Accepted.At.Add(r.turn.Agent.Limits.Duration)
	if d := r.turn.Accepted.Deadline; !d.IsZero() && d.Before(end) {
		return d
	}
	return end
}

// steps is the loop: a response, its calls, until a response asks for none or something ends the turn.
func (r *run) steps(ctx context.Context) (*verdict, error) {
	if r.known.Cancelled() {
		return &verdict{status: schemas.StatusCancelled, code: schemas.CodeCancelled, message: "a cancel event asked for the turn's end"}, nil
	}
	if v, err := r.restart(ctx); err != nil {
		return verdictOf(ctx, err)
	} else if v != nil {
		return v, nil
	}
	var err error
	a := r.turn.Accepted
	if r.offer, err = r.loop.tools.Offer(a.Tools, a.Narrowed, r.turn.Agent.Tools); err != nil {
		return verdictOf(ctx, err)
	}
	for step := 0; ; step++ {
		if step >= r.turn.Agent.Limits.Steps {
			return r.limit("steps", r.turn.Agent.Limits.Steps), nil
		}
		resp, plan, err := r.respond(ctx, step)
		if err != nil {
			return verdictOf(ctx, err)
		}
		if len(resp.Calls) == 0 {
			return r.answer(resp), nil
		}
		if v, err := r.calls(ctx, plan); err != nil {
			return verdictOf(ctx, err)
		} else if v != nil {
			return v, nil
		}
	}
}

// respond returns the response of a step, recorded or new, with the plan of its calls. A new response is recorded together
// with what the plan starts at once.
func (r *run) respond(ctx context.Context, step int) (*fact.Response, *plan, error) {
	if step < len(r.known.responses) {
		resp := &r.known.responses[step].Response
		p, err := r.resumePlan(resp)
		return resp, p, err
	}
	if err := r.mayBegin(ctx); err != nil {
		return nil, nil, err
	}
	resp, err := r.loop.model.Respond(ctx, r.request(step))
	if err != nil {
		return nil, nil, err
	}
	resp.Step = step
	p := r.newPlan(resp)
	return resp, p, r.record(ctx, resp, p)
}

// record records a new response: with its first wave, and durable, when a call of the wave can change something. When nothing
// may begin any more the response is recorded alone, so that it need not be paid for again.
func (r *run) record(ctx context.Context, resp *fact.Response, p *plan) error {
	room := &struct {
		fact.Responded

		facts [1]fact.Fact
	}{}
	room.Responded = fact.Responded{Response: *resp, At: r.now(), Worker: r.loop.cfg.Worker}
	f := &room.Responded
	facts := append(room.facts[:0], f)
	for _, c := range p.refused {
		facts = append(facts, r.finished(c.result))
	}
	if !p.over && p.waves && r.mayBegin(ctx) == nil {
		p.wave = p.next(r.turn.Agent.Limits.Parallel)
		for _, c := range p.wave {
			f.Wave = append(f.Wave, *c.call)
		}
	}
	err := r.start(ctx, p.wave, facts)
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		return e // The journal refused the response, so it is not part of the turn.
	}
	r.known.responses = append(r.known.responses, f)
	return err
}

// answer is the verdict of a response that asks for no call.
func (r *run) answer(resp *fact.Response) *verdict {
	text, err := json.Marshal(resp.Text)
	if err != nil {
		return failed(schemas.CodeModelInvalidResponse, "the answer is not text")
	}
	switch resp.FinishReason {
	case schemas.FinishLength:
		v := failed(schemas.CodeLimitExceeded, "the answer was cut at the model's output limit")
		v.output = text
		return v
	case schemas.FinishContentFilter:
		v := failed(schemas.CodeModelRefused, "the answer was cut by the provider's content filter")
		v.output = text
		return v
	case schemas.FinishError:
		v := failed(schemas.CodeModelInvalidResponse, "the provider ended the answer with an error")
		v.output = text
		return v
	}
	if schema := r.turn.Accepted.OutputSchema; len(schema) > 0 {
		return r.structured(schema, resp.Text, text)
	}
	return &verdict{status: schemas.StatusCompleted, output: text}
}

// structured is the verdict of an answer that has to fit a schema.
func (r *run) structured(schema []byte, answer string, asText []byte) *verdict {
	if err := r.loop.cfg.CheckOutput(schema, []byte(answer)); err != nil {
		v := failed(schemas.CodeInvalidOutput, "the answer does not fit output_schema: %s", detail(err))
		v.output = asText
		return v
	}
	return &verdict{status: schemas.StatusCompleted, output: []byte(answer)}
}

// limit is the verdict of a turn at a limit.
func (r *run) limit(name string, value int) *verdict {
	v := failed(schemas.CodeLimitExceeded, "the limit %s of %d is reached", name, value)
	v.output = r.partial()
	return v
}

// partial is the output of a turn that ends early: what its model said last, if it said anything.
func (r *run) partial() []byte {
	t := r.known.lastText()
	if t == "" {
		return nil
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil
	}
	return text
}

// verdictOf turns a classified error into the end of the turn; any other error stops the turn where it is. So does every error
// after the context has ended, because it may be nothing but the echo of that.
func verdictOf(ctx context.Context, err error) (*verdict, error) {
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return failed(e.Code, "%s", e.Detail()), nil
}

func detail(err error) string {
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		return e.Detail()
	}
	return "it is not valid"
}

// end closes every call that has no finish and records the turn's end.
func (r *run) end(v *verdict) error {
	facts, doubt := r.closeCalls(v)
	if doubt != nil && gravity(doubt.Status) > gravity(v.status) {
		v.status, v.message = doubt.Status, fmt.Sprintf("%s; call %s of %s is %s", v.message, doubt.Key(r.turn.Accepted.TurnID), doubt.Tool.Name, doubt.Status)
	}
	usage, cost, calls := r.known.totals()
	now := r.now()
	r.known.hand(r.loop.cfg.Worker)
	ended := &fact.Ended{
		Status: v.status, Code: v.code, Message: v.message, Output: v.output,
		Usage: usage, CostMicros: cost, Steps: len(r.known.responses), ToolCalls: calls,
		Duration: duration(r.turn.Accepted.At, now), Workers: len(r.known.workers), At: now, Worker: r.loop.cfg.Worker,
	}
	err := r.turn.Journal.Add(append(facts, ended)...)
	if e, refused := errors.AsType[*schemas.Error](err); refused { // It does not fit a record, but a turn must end.
		ended.Output, ended.Message = nil, e.Detail()
		if ended.Status == schemas.StatusCompleted {
			ended.Status, ended.Code = schemas.StatusFailed, e.Code
		}
		err = r.turn.Journal.Add(append(facts, ended)...)
	}
	return err
}

func (r *run) now() time.Time { return r.loop.cfg.Now() }
