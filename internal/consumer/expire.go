package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
)

// expireInterval is how often partitions are looked at for what has expired. What expires is kept to the hour.
const expireInterval = time.Minute

// expire looks after what expires, one partition after another, until ctx ends.
func (w *Worker) expire(ctx context.Context) {
	tick := time.NewTicker(expireInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, p := range w.all() {
			p.expire()
		}
	}
}

// expire counts as one that adds effects, so that a drain waits for it; it stops with the intake.
func (p *partition) expire() {
	if p.is() != stateRunning || !p.enter() {
		return
	}
	defer p.leave()
	e, ok := p.handler.(Expirer)
	if !ok {
		return
	}
	n, err := e.Expire(p.intake)
	if n > 0 {
		p.w.metrics.expired.Add(p.ctx, int64(n))
	}
	if err != nil && p.intake.Err() == nil && !errors.Is(err, statestore.ErrGone) {
		p.halt(p.ctx, fmt.Errorf("expire state of partition %d: %w", p.id, err))
	}
}

func (p *partition) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.enterLocked()
}
