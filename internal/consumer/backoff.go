package consumer

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is a wait that doubles from its first value to its limit. Half of each wait is left to chance, so that workers which lost the
// same broker do not come back at the same moment.
type backoff struct {
	first, limit time.Duration
	next         time.Duration
}

// wait waits, and returns the cause if ctx ends before.
func (b *backoff) wait(ctx context.Context) error { return sleep(ctx, b.step()) }

// step returns the next wait.
func (b *backoff) step() time.Duration {
	b.next = min(max(2*b.next, b.first), b.limit)
	return b.next/2 + rand.N(b.next/2+1) //nolint:gosec // Spreading load needs no secrecy.
}

// reset begins again with the first wait.
func (b *backoff) reset() { b.next = 0 }
