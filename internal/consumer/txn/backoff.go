package txn

import (
	"context"
	"time"
)

// backoff is a wait that doubles from its first value to its limit.
type backoff struct {
	next, limit time.Duration
}

// wait waits, and returns the cause if ctx ends before.
func (b *backoff) wait(ctx context.Context) error {
	timer := time.NewTimer(b.next)
	defer timer.Stop()
	b.next = min(2*b.next, b.limit)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
