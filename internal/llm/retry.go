package llm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/spare"
	"github.com/lathe-run/lathe/schemas"
)

const (
	firstWait = 500 * time.Millisecond
	// longestWait bounds a wait of our own; what the provider asks for is waited.
	longestWait = 30 * time.Second
	// longestAsked bounds what a provider may ask for when the caller has no deadline.
	longestAsked = 10 * time.Minute
)

// retry makes attempts until one answers, one fails for good, or neither time nor attempts are left for another.
func (r *Router) retry(ctx context.Context, m *model, req *fact.Request, try send) (*fact.Response, error) {
	_, timed := ctx.Deadline()
	for n := 0; ; {
		p, err := m.begin(ctx, req.Draining)
		if err != nil {
			return nil, err
		}
		resp, err := m.attempt(ctx, try, n, p)
		if err == nil {
			return resp, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e, ok := errors.AsType[*schemas.Error](err)
		if !ok {
			return nil, classified(err)
		}
		if e.Class != schemas.ClassRetryable {
			return nil, err
		}
		wait := backoff(n, e.RetryAfter, r.deps.private.jitter())
		if m.breaker.isOpen() {
			wait = 0 // The breaker says when, to all that ask.
		}
		if !p.probe || !timed { // Of probes a turn may make as many as its time allows.
			n++
		}
		if n >= m.cfg.Attempts || !fits(ctx, wait) {
			return nil, givenUp(e, n)
		}
		if wait == 0 {
			continue
		}
		r.deps.Logger.WarnContext(ctx, "model request failed, trying again",
			slog.String("model", m.cfg.Name), slog.String("turn_id", req.TurnID), slog.Int("step", req.Step),
			slog.Int("attempt", n), slog.Duration("wait", wait), slog.Any("error", e))
		r.deps.Retried(ctx)
		if err := await(ctx, req.Draining, nil, time.Now().Add(wait)); err != nil {
			return nil, err
		}
	}
}

// begin waits until a request may be made: the model has a place for it, and is not down, or the request is to find that out.
func (m *model) begin(ctx context.Context, draining <-chan struct{}) (pass, error) {
	for {
		p, err := m.breaker.wait(ctx, draining)
		if err != nil {
			return p, err
		}
		if err := m.take(ctx, draining); err != nil {
			m.breaker.report(ctx, p, unknown, nil)
			return p, err
		}
		if m.breaker.allows(p) {
			return p, nil
		}
		m.giveBack()
	}
}

// take takes one of the model's places.
func (m *model) take(ctx context.Context, draining <-chan struct{}) error {
	if m.places == nil {
		return nil
	}
	select {
	case m.places <- struct{}{}:
		return nil
	case <-draining:
		return ErrDraining
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *model) giveBack() {
	if m.places != nil {
		<-m.places
	}
}

// attempt makes one request within the model's timeout, and gives its place back.
func (m *model) attempt(ctx context.Context, try send, n int, p pass) (resp *fact.Response, err error) {
	h := unknown
	defer func() { // Also when it panics.
		m.giveBack()
		m.breaker.report(ctx, p, h, err)
	}()
	resp, err = m.once(ctx, try, n)
	if h = healthOf(ctx, err); h == failing && p.probe {
		err = mayPass(err)
	}
	return resp, err
}

func (m *model) once(ctx context.Context, try send, n int) (*fact.Response, error) {
	if m.cfg.Timeout <= 0 {
		return try(ctx, n)
	}
	bounded := &spare.Timeout{}
	bounded.Set(ctx, m.cfg.Timeout, context.DeadlineExceeded)
	defer bounded.Cancel()
	resp, err := try(bounded, n) //nolint:contextcheck // It comes of ctx.
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, &schemas.Error{
			Class: schemas.ClassRetryable, Code: schemas.CodeModelUnavailable,
			Message: fmt.Sprintf("the model did not answer within %s", m.cfg.Timeout), Err: err,
		}
	}
	return resp, err
}

// mayPass makes the failure of a probe one that is waited for. A key that is not accepted ends a turn at once as a rule; but when
// the model is known to be down, each probe would cost a turn.
func mayPass(err error) error {
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok {
		return err
	}
	waited := *e
	waited.Class = schemas.ClassRetryable
	return &waited
}

// backoff is the wait after attempt n: what the provider asked for and a little more, else a time that doubles, half of it
// random, so that many turns do not come back at once.
func backoff(n int, asked time.Duration, jitter float64) time.Duration {
	if asked > 0 {
		return asked + time.Duration(jitter*float64(min(asked/10, time.Second)))
	}
	wait := longestWait
	if n < 6 {
		wait = min(firstWait<<n, longestWait)
	}
	return wait/2 + time.Duration(jitter*float64(wait/2))
}

// fits reports whether ctx leaves time to wait and ask again.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	if !ok {
		return wait <= longestAsked
	}
	return time.Until(deadline) > wait
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// givenUp says how often it was tried. The class stays retryable: later it may work.
func givenUp(e *schemas.Error, attempts int) error {
	last := *e
	if attempts > 1 {
		last.Message = fmt.Sprintf("%s; given up after %d attempts", e.Message, attempts)
	}
	return &last
}
