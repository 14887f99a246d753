package llm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// ErrDraining is what a request gives that was not made, or not again, because its Draining was closed.
var ErrDraining = errors.New("nothing may begin any more")

const (
	// breakerFailures is how many requests in a row must fail, whoever makes them, until a model counts as down. One turn that is
	// alone makes as many in about four seconds.
	breakerFailures = 5
	// breakerMargin is how long before the end of its time a request that waits gives up, so that it can say why.
	breakerMargin = 250 * time.Millisecond
)

// breaker holds back what would only fail: the requests of a model that is down, and the turns that would make some. While it is
// open one request at a time is a probe, at times that grow apart; the first that is answered closes it. A turn that has not begun
// waits without beginning, so that an outage costs it nothing. Only when no turn that has begun is left to probe, one that has not
// may begin.
//
// A nil breaker is always closed.
type breaker struct {
	model, provider string
	log             *slog.Logger
	metrics         *metrics
	jitter          func() float64

	// open mirrors mu.open for who finds it closed, failures counts those in a row while it is closed, and epoch how often it was
	// closed: they are written with mu held.
	open     atomic.Bool
	failures atomic.Int64
	epoch    atomic.Uint64
	// asking counts the turns that are inside Respond, waiting those of them, and beside them, that the breaker holds back.
	asking, waiting atomic.Int64

	mu struct {
		sync.Mutex
		open  bool
		since time.Time
		cause string
		// probes failed in a row; probing says that one is under way, next when the next may be made, and admit when another turn
		// may begin for it.
		probes      int
		probing     bool
		next, admit time.Time
		// changed is closed when something changes that a waiting turn must look at.
		changed chan struct{}
	}
}

func newBreaker(cfg Config, deps Deps, m *metrics) *breaker {
	b := &breaker{model: cfg.Name, provider: cfg.Provider, log: deps.Logger, metrics: m, jitter: deps.private.jitter}
	b.mu.changed = make(chan struct{})
	return b
}

// pass is the leave to make one request.
type pass struct {
	probe bool
	epoch uint64
}

func (b *breaker) isOpen() bool { return b != nil && b.open.Load() }

// enter counts a turn that asks; leave lets another begin when it was the last.
func (b *breaker) enter() {
	if b != nil {
		b.asking.Add(1)
	}
}

func (b *breaker) leave() {
	if b == nil || b.asking.Add(-1) > 0 || !b.open.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changeLocked()
}

func (b *breaker) changeLocked() {
	close(b.mu.changed)
	b.mu.changed = make(chan struct{})
}

// wait returns when a request may be made: at once, or as a probe, or when the model answers again.
func (b *breaker) wait(ctx context.Context, draining <-chan struct{}) (pass, error) {
	if !b.isOpen() {
		return b.plain(), nil
	}
	late := time.Time{}
	if deadline, ok := ctx.Deadline(); ok {
		late = deadline.Add(-breakerMargin)
	}
	var p pass
	err := b.await(ctx, draining, late, func(now time.Time) (in bool, due time.Time) {
		p = pass{epoch: b.epoch.Load()}
		switch {
		case !b.mu.open:
			return true, due
		case b.mu.probing: // How it ends is a change.
			return false, due
		case now.Before(b.mu.next):
			return false, b.mu.next
		}
		p.probe, b.mu.probing = true, true
		return true, due
	})
	return p, err
}

func (b *breaker) plain() pass {
	if b == nil {
		return pass{}
	}
	return pass{epoch: b.epoch.Load()}
}

// admitTurn returns when a turn that has not begun may begin.
func (b *breaker) admitTurn(ctx context.Context, draining <-chan struct{}) error {
	if !b.isOpen() {
		return nil
	}
	return b.await(ctx, draining, time.Time{}, func(now time.Time) (in bool, due time.Time) {
		due = b.mu.next
		if b.mu.admit.After(due) {
			due = b.mu.admit
		}
		switch {
		case !b.mu.open:
			return true, due
		case b.mu.probing || b.asking.Load() > 0: // That they are done is a change.
			return false, time.Time{}
		case now.Before(due):
			return false, due
		}
		b.mu.admit = now.Add(b.interval(0))
		return true, due
	})
}

// await calls try, with the lock held, until it says that the wait is over: at each change, and when it says so, if it does. It
// gives up at the time late, if that is set.
func (b *breaker) await(ctx context.Context, draining <-chan struct{}, late time.Time, try func(now time.Time) (bool, time.Time)) error {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	for {
		now := time.Now()
		b.mu.Lock()
		in, due := try(now)
		changed := b.mu.changed
		b.mu.Unlock()
		switch {
		case in:
			return nil
		case late.IsZero():
		case !now.Before(late):
			return b.down()
		case due.IsZero() || late.Before(due):
			due = late
		}
		if err := await(ctx, draining, changed, due); err != nil {
			return err
		}
	}
}

// await returns when something has changed, at the time due if that is set, or with what ends the wait.
func await(ctx context.Context, draining, changed <-chan struct{}, due time.Time) error {
	var alarm <-chan time.Time
	if !due.IsZero() {
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-changed:
	case <-alarm:
	case <-draining:
		return ErrDraining
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// down is the error of a request whose time ended while it was held back.
func (b *breaker) down() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &schemas.Error{
		Class: schemas.ClassRetryable, Code: schemas.CodeModelUnavailable,
		Message: fmt.Sprintf("the model is down since %s, and the time of the turn is over: %s", b.mu.since.UTC().Format(time.RFC3339), b.mu.cause),
	}
}

// allows reports whether a request may still be made that had to wait for something else meanwhile.
func (b *breaker) allows(p pass) bool { return p.probe || !b.isOpen() }

// report takes how a request went.
func (b *breaker) report(ctx context.Context, p pass, h health, err error) {
	if b == nil || h == answered && !b.open.Load() && b.failures.Load() == 0 {
		return
	}
	b.mu.Lock()
	was, since := b.mu.open, b.mu.since
	b.reportLocked(p, h, err)
	is, cause := b.mu.open, b.mu.cause
	b.mu.Unlock()
	switch {
	case is && !was:
		b.metrics.opened(ctx, b)
		b.log.WarnContext(ctx, "model is down; its agents begin no turns until it answers", slog.String("model", b.model), slog.String("cause", cause))
	case was && !is:
		b.log.InfoContext(ctx, "model answers again", slog.String("model", b.model), slog.Duration("after", time.Since(since)))
	}
}

func (b *breaker) reportLocked(p pass, h health, err error) {
	if h == answered { // Also of a request made before: it is answered now.
		b.closeLocked()
		return
	}
	if p.epoch != b.epoch.Load() {
		return // It was made before the breaker was last closed, so it tells of an outage that is over.
	}
	if p.probe {
		b.mu.probing = false
		b.changeLocked()
	}
	if h == unknown || b.mu.open && !p.probe {
		return
	}
	e, _ := errors.AsType[*schemas.Error](err)
	asked := time.Duration(0)
	if e != nil {
		b.mu.cause, asked = e.Detail(), min(e.RetryAfter, longestAsked)
	}
	if p.probe {
		b.mu.probes++
		b.mu.next = time.Now().Add(b.interval(asked))
		return
	}
	if b.failures.Add(1) >= breakerFailures {
		b.mu.open, b.mu.since, b.mu.probes = true, time.Now(), 0
		b.mu.next, b.mu.admit = b.mu.since.Add(b.interval(asked)), time.Time{}
		b.open.Store(true)
	}
}

func (b *breaker) closeLocked() {
	b.failures.Store(0)
	if !b.mu.open {
		return
	}
	b.mu.open, b.mu.probing = false, false
	b.open.Store(false)
	b.epoch.Add(1)
	b.changeLocked()
}

// interval is the time to the next probe: from half a second to a second after the breaker has opened, and longer each time.
func (b *breaker) interval(asked time.Duration) time.Duration {
	return backoff(b.mu.probes+1, asked, b.jitter())
}
