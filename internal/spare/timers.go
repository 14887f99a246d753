package spare

import (
	"sync"
	"time"
)

// Timers are timers that nobody uses right now: a new one takes three allocations. It is safe for concurrent use.
type Timers struct{ pool sync.Pool }

// Get returns a timer that fires after d. It is given back with Put.
func (p *Timers) Get(d time.Duration) *time.Timer {
	if t, ok := p.pool.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// Put stops a timer and takes it back. Nobody may use it any more; what it had to say is lost, whether it was heard or not.
func (p *Timers) Put(t *time.Timer) {
	t.Stop()
	p.pool.Put(t)
}
