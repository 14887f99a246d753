package spare

import (
	"context"
	"sync"
	"time"
)

// Timeout is a context that ends when its parent does, when its time is over or when it is cancelled, as one of
// context.WithTimeoutCause does. It is made of such a one when somebody first asks whether it has ended: what answers at once never
// does, and then it costs no timer, no channel and no entry in its parent. Set it before use; it is safe for concurrent use then.
type Timeout struct {
	parent context.Context //nolint:containedctx // It is a context.
	at     time.Time
	cause  error

	mu struct {
		sync.Mutex
		made   context.Context //nolint:containedctx // As above.
		cancel context.CancelFunc
		over   bool
	}
}

// Set begins the time. The cause is what context.Cause gives when it is over.
func (t *Timeout) Set(parent context.Context, after time.Duration, cause error) {
	t.parent, t.at, t.cause = parent, time.Now().Add(after), cause
}

// Cancel ends the context.
func (t *Timeout) Cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.over = true
	if t.mu.cancel != nil {
		t.mu.cancel()
	}
}

func (t *Timeout) real() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.made == nil {
		t.mu.made, t.mu.cancel = context.WithDeadlineCause(t.parent, t.at, t.cause) //nolint:fatcontext // It is made once.
		if t.mu.over {
			t.mu.cancel()
		}
	}
	return t.mu.made
}

// Deadline implements context.Context.
func (t *Timeout) Deadline() (time.Time, bool) {
	if d, ok := t.parent.Deadline(); ok && d.Before(t.at) {
		return d, true
	}
	return t.at, true
}

// Done implements context.Context.
func (t *Timeout) Done() <-chan struct{} { return t.real().Done() }

// Err implements context.Context.
func (t *Timeout) Err() error { return t.real().Err() }

// Value implements context.Context. Package context looks for what ends a parent by a value too, after it has asked for Done or Err.
func (t *Timeout) Value(key any) any {
	t.mu.Lock()
	made := t.mu.made
	t.mu.Unlock()
	if made != nil {
		return made.Value(key)
	}
	return t.parent.Value(key)
}
