package turn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// The sequence of a call. A call goes through these stages; a stage that refuses it gives its result and the rest is skipped.
//
//	 1. known?       Offer.Prepare: a tool of this turn, else unknown_tool
//	 2. recorded?    resumePlan: a recorded result is used, a start without finish is in doubt
//	 3. arguments    Offer.Prepare: they parse and fit the schema, else invalid_arguments
//	10. started      start: tool:start, durable first when a call of the wave can change something
//	11. execute      Tools.Execute: timeout, retries
//	12. output       Tools.Execute: it fits its schema and the size limit
//	13. finished     finish: tool:result
//	14. to the model request: the result as the model is told it
//
// Stages 4 to 9 (permission, policy, guards, preflight, cache, budget) stand between preparing and starting.

// calls runs the calls of a step, as far as they have no result yet.
func (r *run) calls(ctx context.Context, p *plan) (*verdict, error) {
	if p.over {
		return r.limit("calls", r.turn.Agent.Limits.Calls), nil
	}
	var err error
	if p.waves {
		err = r.runWaves(ctx, p)
	} else {
		err = r.runReads(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	return r.judge(p.step), nil
}

// runWaves runs the calls of a step in which one can change something. A wave is as many calls as may run at once; its start
// is durable before any of it runs, and the next wave's start is committed with the results of the last.
func (r *run) runWaves(ctx context.Context, p *plan) error {
	for {
		if len(p.wave) == 0 {
			if err := r.nextWave(p); err != nil || len(p.wave) == 0 {
				return err
			}
			if err := r.mayBegin(ctx); err != nil {
				return err
			}
			if err := r.start(ctx, p.wave, r.beginFacts(p.wave)); err != nil {
				return err
			}
		}
		if err := r.runWave(ctx, p.wave); err != nil {
			return err
		}
		p.wave = nil
	}
}

// nextWave takes the calls of the next wave. It refuses those that an earlier wave has made a repeat of a call in doubt.
func (r *run) nextWave(p *plan) error {
	for len(p.wave) == 0 && len(p.ready) > 0 {
		for _, c := range p.next(r.turn.Agent.Limits.Parallel) {
			refusal := r.repeated(c.call)
			if refusal == nil || c.inDoubt {
				p.wave = append(p.wave, c)
				continue
			}
			refusal.Started = c.started
			if err := r.finish(c, r.finished(refusal)); err != nil {
				return err
			}
		}
	}
	return nil
}

// beginFacts start the calls of a wave: those that are new with a tool:start, those that had theirs without.
func (r *run) beginFacts(wave []*callState) []fact.Fact {
	// Most waves are one new call that only reads: its start is one piece of memory.
	b := &struct {
		fresh, again fact.Began
		call         [1]fact.Call
		facts        [2]fact.Fact
	}{}
	fresh, again := b.call[:0], []fact.Call(nil)
	for _, c := range wave {
		switch {
		case c.inDoubt: // It runs again under its key; nothing new to say.
		case c.started:
			again = append(again, *c.call)
		default:
			fresh = append(fresh, *c.call)
		}
	}
	facts := b.facts[:0]
	at, worker := r.now(), r.loop.cfg.Worker
	if len(fresh) > 0 {
		b.fresh = fact.Began{Calls: fresh, At: at, Worker: worker}
		facts = append(facts, &b.fresh)
	}
	if len(again) > 0 {
		b.again = fact.Began{Calls: again, At: at, Worker: worker, Again: true}
		facts = append(facts, &b.again)
	}
	return facts
}

// start records the start of a wave, with the facts that say so. When a call of it can change something it returns after the
// commit.
func (r *run) start(ctx context.Context, wave []*callState, facts []fact.Fact) error {
	durable := false
	for _, c := range wave {
		durable = durable || c.call.Tool.Changes()
	}
	if len(facts) == 0 {
		return nil
	}
	if !durable {
		if err := r.turn.Journal.Add(facts...); err != nil {
			return err
		}
		markStarted(wave)
		return nil
	}
	err := r.turn.Journal.Commit(ctx, facts...)
	if _, refused := errors.AsType[*schemas.Error](err); refused {
		return err
	}
	markStarted(wave)
	if err != nil {
		return r.notBegun(ctx, wave, err)
	}
	return nil
}

func markStarted(wave []*callState) {
	for _, c := range wave {
		c.started = true
	}
}

// runWave runs a wave and waits for all of it.
func (r *run) runWave(ctx context.Context, wave []*callState) error {
	err := together(len(wave), func(i int) error { return r.execute(ctx, wave[i]) })
	if err != nil {
		return r.notBegun(ctx, wave, err)
	}
	return nil
}

// together calls f with 0 to n-1, side by side, and waits for all. A panic is raised again when the others are done, so that
// whoever recovers it finds the turn at rest.
func together(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	errs, panics := make([]error, n), make([]any, n)
	call := func(i int) {
		defer func() {
			if p := recover(); p != nil {
				panics[i] = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
		}()
		errs[i] = f(i)
	}
	var wg sync.WaitGroup
	for i := 1; i < n; i++ {
		wg.Go(func() { call(i) })
	}
	call(0)
	wg.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
	return errors.Join(errs...)
}

// notBegun records of the calls of a wave that the worker stopped before they began that they did not, so that none of them
// is in doubt for the next worker. When the turn itself ends they are closed instead.
func (r *run) notBegun(ctx context.Context, wave []*callState, stopped error) error {
	f := &fact.NotBegun{}
	for _, c := range wave {
		if !c.begun && !c.inDoubt && c.result == nil {
			f.Calls = append(f.Calls, c.call.Ref)
		}
	}
	if len(f.Calls) == 0 || r.stoppedBy(ctx) != nil {
		return stopped
	}
	return errors.Join(stopped, r.turn.Journal.Add(f))
}

// runReads runs the calls of a step that only reads: each starts as soon as a place is free.
func (r *run) runReads(ctx context.Context, p *plan) error {
	places := min(r.turn.Agent.Limits.Parallel, len(p.ready))
	if places <= 1 {
		for _, c := range p.ready {
			if err := r.read(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
	queue := make(chan *callState, len(p.ready))
	for _, c := range p.ready {
		queue <- c
	}
	close(queue)
	return together(places, func(int) error {
		for c := range queue {
			if err := r.read(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// read starts and runs one call that changes nothing. A call that is not started yet starts only if it may begin.
func (r *run) read(ctx context.Context, c *callState) error {
	if err := r.mayBegin(ctx); err != nil {
		return err
	}
	wave := []*callState{c}
	if err := r.start(ctx, wave, r.beginFacts(wave)); err != nil {
		return err
	}
	return r.execute(ctx, c)
}

// mayBegin asks the turn's own context and the gate, just before something begins.
func (r *run) mayBegin(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.turn.Gate.Permit(ctx)
}

// execute runs a started call and records its result. What the worker itself cancelled is not recorded: the call stays in
// doubt.
func (r *run) execute(ctx context.Context, c *callState) error {
	if err := r.mayBegin(ctx); err != nil {
		return err
	}
	c.begun = true
	a := r.turn.Accepted
	f := &fact.Finished{Worker: r.loop.cfg.Worker}
	var err error
	if f.Result, err = r.loop.tools.Execute(ctx, c.call, fact.Invocation{
		TurnID: a.TurnID, SessionID: a.SessionID, Agent: a.AgentName, Scope: a.Scope, Durable: c.call.Tool.Changes(),
	}); err != nil {
		if e, ok := errors.AsType[notBegunError](err); ok && e.NotBegun() {
			c.begun = false
		}
		return err
	}
	f.At = r.now()
	return r.finish(c, f)
}

// notBegunError is an error of Tools.Execute that knows whether anything has run.
type notBegunError interface {
	error
	NotBegun() bool
}

// finish records the result of a call. One that does not fit a record is recorded without its output: a call that started
// needs a finish.
func (r *run) finish(c *callState, f *fact.Finished) error {
	err := r.turn.Journal.Add(f)
	if e, refused := errors.AsType[*schemas.Error](err); refused {
		f = r.finished(unfit(&f.Result, e))
		err = r.turn.Journal.Add(f)
	}
	if err == nil {
		c.result = &f.Result
	}
	return err
}

// unfit is a result of which only the outcome can be kept.
func unfit(res *fact.Result, why *schemas.Error) *fact.Result {
	out := *res
	out.Output, out.ForModel, out.Message = nil, "", why.Detail()
	if res.OK() {
		out.Status, out.Code = schemas.StatusError, schemas.CodeResultTooLarge
		if res.Tool.Effect == schemas.EffectWrite || res.Tool.Effect == schemas.EffectHost {
			out.Status = schemas.StatusOutcomeUnknown
		}
	}
	return &out
}

func (r *run) finished(res *fact.Result) *fact.Finished {
	return &fact.Finished{Result: *res, At: r.now(), Worker: r.loop.cfg.Worker}
}

// resultOf is the result of a call that has started, without what only running it can tell.
func resultOf(c *callState, status string, code schemas.Code, message string) *fact.Result {
	sum := sha256.Sum256(c.call.Input)
	return &fact.Result{
		Ref: c.call.Ref, CallID: c.call.CallID, Tool: c.call.Tool, Status: status, Code: code, Message: message,
		Started: c.started, InputHash: sum[:],
	}
}

// same reports whether a recorded call is what would run now.
func same(recorded *callState, now *fact.Call) bool {
	if now == nil {
		return false
	}
	if c := recorded.call; c != nil {
		return sameTool(c.Tool, now.Tool) && bytes.Equal(c.Input, now.Input)
	}
	sum := sha256.Sum256(now.Input)
	return sameTool(recorded.result.Tool, now.Tool) && bytes.Equal(recorded.result.InputHash, sum[:])
}

// sameTool leaves effect and idempotency out: of those the recorded ones decide.
func sameTool(a, b fact.Tool) bool {
	return a.Name == b.Name && a.Version == b.Version && a.Fingerprint == b.Fingerprint
}
