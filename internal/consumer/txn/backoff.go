package txn

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is a wait that doubles from its first value to its limit. It is not safe for concurrent use.
type Backoff struct {
	First, Limit time.Duration
	// Spread leaves half of each wait to chance, so that workers which lost the same broker do not come back at the same moment.
	Spread bool

	last time.Duration
}

// Wait waits, and returns the cause if ctx ends before.
func (b *Backoff) Wait(ctx context.Context) error {
	timer := time.NewTimer(b.Step())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Step returns the next wait.
func (b *Backoff) Step() time.Duration {
	b.last = min(max(2*b.last, b.First), b.Limit)
	if !b.Spread {
		return b.last
	}
	return b.last/2 + rand.N(b.last/2+1) //nolint:gosec // Spreading load needs no secrecy.
}

// Begun reports whether there was a wait since the beginning or the last Reset.
func (b *Backoff) Begun() bool { return b.last > 0 }

// Reset begins again with the first wait.
func (b *Backoff) Reset() { b.last = 0 }
