package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/lathe-run/lathe/internal/spare"
)

// reply is what one attempt gave.
type reply struct {
	// raw is the JSON of the tool's value, as encoding/json wrote it; if text is set, it is the canonical form of that string.
	raw  []byte
	text any
	// fits is set if raw is canonical and certainly fits the tool's schema.
	fits bool
	err  error
}

// attempt runs the tool once in a goroutine of its own, because a tool that does not stop must not hold up its turn. The error is
// set if there is no reply: ctx ended first, or the tools are closed.
func (x *execution) attempt(ctx context.Context) (reply, error) {
	if ctx.Err() != nil {
		return reply{}, x.notBegun(context.Cause(ctx))
	}
	if !x.runtime.calls.enter() {
		return reply{}, x.notBegun(ErrClosed)
	}
	x.attempts++
	a := &x.first
	if x.attempts > 1 { // The one before may still run.
		a = new(attempt)
	}
	a.x, a.done = x, x.runtime.signals.get()
	a.limited.Set(ctx, x.tool.timeout, errTimeout)
	defer a.limited.Cancel()
	a.context = Context{Context: &a.limited, runtime: x.runtime, call: &x.call, inv: &x.inv, attempt: x.attempts}
	x.runtime.goroutines.Go(a.run)
	timer := x.runtime.timers.Get(x.tool.timeout)
	defer x.runtime.timers.Put(timer)
	select {
	case <-a.done:
		x.runtime.signals.put(a.done)
		return a.judge(a.reply), nil //nolint:contextcheck // The attempt has it.
	case <-timer.C:
		<-a.limited.Done() // So that the tool sees its time over, and not a cancel.
	case <-ctx.Done():
	}
	// Both may be ready; an answer that is here counts.
	select {
	case <-a.done:
		return a.judge(a.reply), nil //nolint:contextcheck // The attempt has it.
	default:
	}
	a.given.Store(true)
	if ctx.Err() != nil {
		return reply{}, context.Cause(ctx)
	}
	return reply{err: errTimeout}, nil
}

// notBegun is the error of an attempt that did not start: if it would have been the first, nothing has run.
func (x *execution) notBegun(err error) error {
	if x.attempts == 0 {
		return &NotBegunError{err}
	}
	return err
}

// attempt is one run of a tool's code. The goroutine of run sends to done once, and last; a reply that nobody waits for stays there.
type attempt struct {
	x       *execution
	limited spare.Timeout
	context Context
	// reply is the tool's answer once done says so.
	reply reply
	done  chan struct{}
	// given is set when nobody waits any more.
	given atomic.Bool
}

// judge calls an error of a tool whose time is up what it is, unless the tool knows more.
func (a *attempt) judge(r reply) reply {
	if r.err == nil || !errors.Is(context.Cause(&a.limited), errTimeout) {
		return r
	}
	if f := classify(r.err); f.clean || !f.again {
		return r
	}
	return reply{err: fmt.Errorf("%w: %w", errTimeout, r.err)}
}

func (a *attempt) run() {
	a.reply.err = errEnded
	defer a.x.runtime.calls.leave()
	defer func() {
		if v := recover(); v != nil {
			a.reply = reply{err: &panicError{value: v, stack: debug.Stack()}}
		}
		if a.given.Load() {
			logger := a.context.Logger()
			logger.WarnContext(&a.context, "tool answered too late, its answer is thrown away", slog.Int("attempt", a.context.attempt))
		}
		a.done <- struct{}{}
	}()
	decoded := a.x.call.Decoded
	if a.context.attempt > 1 { // The first may have changed what it was given.
		decoded = nil
	}
	v, err := a.x.tool.run(&a.context, a.x.call.Input, decoded)
	if err != nil {
		a.reply = reply{err: err}
		return
	}
	a.reply = a.encode(v)
}

func (a *attempt) encode(v any) reply {
	if s, ok := v.(string); ok {
		if !utf8.ValidString(s) {
			s = strings.ToValidUTF8(s, "\uFFFD")
			v = s
		}
		return reply{raw: appendEscaped(make([]byte, 0, len(s)+2), s), text: v}
	}
	if raw := a.x.tool.out.encode(v); raw != nil {
		return reply{raw: raw, fits: true}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return reply{err: &outputError{a.x.call.Tool.Name, err}}
	}
	return reply{raw: raw}
}

// panicError is a tool that panicked.
type panicError struct {
	value any
	stack []byte
}

// errEnded is what a tool is taken to have answered until it has.
var errEnded error = &panicError{value: "the tool ended its goroutine"}

func (e *panicError) Error() string { return fmt.Sprint(e.value) }

// outputError is a result that has no JSON form.
type outputError struct {
	tool string
	err  error
}

func (e *outputError) Error() string { return "encode the result of " + e.tool + ": " + e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }
