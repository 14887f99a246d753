package tools

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// errTimeout is the cause of a context whose tool took too long.
var errTimeout = errors.New("the tool's timeout passed")

// Execute runs a call that was prepared and started, with its timeout and retries, and returns how it ended. What the call
// recorded of its tool decides how careful to be, not what the tool says today.
//
// The error says that there is no outcome: ctx ended before the tool answered, and the error is or wraps its cause; the tools are
// closed; or the tool is not bound any more. It is a *NotBegunError if nothing has run.
func (b *Bound) Execute(ctx context.Context, call fact.Call, inv Invocation) (fact.Result, error) {
	t := b.byName[call.Tool.Name]
	if t == nil {
		gone := schemas.Errorf(schemas.CodeReplayInputChanged, "agent %s no longer has tool %s", b.agent, call.Tool.Name)
		return fact.Result{}, &NotBegunError{gone}
	}
	x := &execution{runtime: b.runtime, tool: t, call: call, inv: inv, begun: time.Now()}
	return x.run(ctx)
}

// execution is one call that runs. Only its own goroutine touches attempts and doubt, and first says who touches what; the rest does
// not change.
type execution struct {
	runtime  *Runtime
	tool     *boundTool
	call     fact.Call
	inv      Invocation
	begun    time.Time
	attempts int
	// doubt is set once an attempt ended without saying that nothing happened.
	doubt bool
	// first is the first attempt; most calls have no other.
	first attempt
}

func (x *execution) run(ctx context.Context) (fact.Result, error) {
	for {
		reply, err := x.attempt(ctx)
		if err != nil {
			return fact.Result{}, err
		}
		if reply.err == nil {
			return x.answered(ctx, reply), nil
		}
		f := classify(reply.err)
		if ctx.Err() != nil && !f.clean {
			// The error may be nothing but the echo of the cancelling.
			return fact.Result{}, context.Cause(ctx)
		}
		x.doubt = x.doubt || !f.clean
		again := f.again && x.call.Tool.Idempotency == schemas.SafeToRetry && x.attempts <= x.tool.opts.Retry.Retries
		x.log(ctx, f, again)
		if !again {
			return x.failed(f), nil
		}
		x.runtime.deps.Retried(ctx)
		if err := x.wait(ctx); err != nil {
			return fact.Result{}, err
		}
	}
}

func (x *execution) wait(ctx context.Context) error {
	d := x.tool.opts.Retry.wait(x.attempts, x.runtime.deps.Rand)
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait is how long to wait before retry n, counted from 1.
func (r Retry) wait(n int, random func() float64) time.Duration {
	d := float64(r.Initial)
	grow := r.Multiplier
	if grow == 0 {
		grow = 2
	}
	for range min(n-1, 64) {
		d *= grow
	}
	if r.Max > 0 {
		d = min(d, float64(r.Max))
	}
	if r.Jitter > 0 {
		d -= d * r.Jitter * random()
	}
	return time.Duration(min(d, float64(24*time.Hour)))
}

// result is what every outcome of the call has in common.
func (x *execution) result(status string, code schemas.Code) fact.Result {
	hash := sha256.Sum256(x.call.Input)
	return fact.Result{
		Ref: x.call.Ref, CallID: x.call.CallID, Tool: x.call.Tool, Status: status, Code: code, Started: true,
		Attempts: x.attempts, Duration: time.Since(x.begun), InputHash: hash[:],
	}
}

func (x *execution) answered(ctx context.Context, r reply) fact.Result {
	output, f := x.tool.result(r)
	if f != nil {
		x.doubt = true
		x.log(ctx, *f, false)
		return x.failed(*f)
	}
	result := x.result(schemas.StatusOK, "")
	result.Output = output
	return result
}

func (x *execution) failed(f failure) fact.Result {
	status := schemas.StatusError
	changes := x.call.Tool.Effect == schemas.EffectWrite || x.call.Tool.Effect == schemas.EffectHost
	switch {
	case changes && x.doubt:
		status = schemas.StatusOutcomeUnknown
	case f.code == schemas.CodeToolRefused:
		status = schemas.StatusDenied
	}
	result := x.result(status, f.code)
	result.Message, result.ForModel = f.message, f.forModel
	if f.code == schemas.CodeTimeout {
		result.Message = "no answer within " + x.tool.timeout.String()
	}
	if status == schemas.StatusOutcomeUnknown {
		result.Message += "; the call may have taken effect"
	}
	return result
}

// log is the one place where the raw text of a tool's error goes.
func (x *execution) log(ctx context.Context, f failure, again bool) {
	logger := x.runtime.logger(&x.call, &x.inv)
	code, attempt := slog.String("code", string(f.code)), slog.Int("attempt", x.attempts)
	text := slog.Any("error", f.err)
	switch {
	case f.stack != nil:
		logger.ErrorContext(ctx, "tool panicked", code, attempt, text, slog.String("stack", string(f.stack)))
	case again:
		logger.WarnContext(ctx, "tool call failed and is tried again", code, attempt, text)
	case f.code == schemas.CodeToolRefused:
		logger.InfoContext(ctx, "tool refused", code, attempt, text)
	default:
		logger.WarnContext(ctx, "tool call failed", code, attempt, text)
	}
}
