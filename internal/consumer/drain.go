package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
)

// ErrUnclean says that the worker stopped although not everything was drained.
var ErrUnclean = errors.New("the worker stopped before all partitions were drained and committed")

// drainAll drains every partition within one budget. It returns nil when each was let go of with its last commit standing.
func (w *Worker) drainAll(ctx context.Context) error {
	w.mu.Lock()
	w.mu.closing = true
	w.mu.Unlock()
	w.log.InfoContext(ctx, "worker drains")
	parts := w.all()
	clean := make([]bool, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { clean[i] = p.drainToStop(ctx, w.cfg.DrainBudget) })
	}
	wg.Wait()
	if err := w.failure(); err != nil {
		return err
	}
	select {
	case <-w.stopped:
		return ErrStopped
	default:
	}
	var faults []error
	for i, p := range parts {
		if !clean[i] {
			faults = append(faults, fmt.Errorf("partition %d", p.id))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w", ErrUnclean, errors.Join(faults...))
	}
	return nil
}

// drain ends a partition in order: nothing begins any more, what runs may go on within the budget and is cancelled then, the last
// commit says that nothing is left in flight, the partition is let go of. Whoever calls it while it is under way waits for it.
func (p *partition) drain(ctx context.Context, budget time.Duration, to state) {
	if p.drains.CompareAndSwap(false, true) {
		p.drainTo(ctx, budget, to)
	}
	<-p.detached
	if to == stateGone {
		p.end(to, ErrLost)
	}
}

// drainToStop is the drain of a worker that stops. Beyond the budgets it waits only closeGrace for the cycle that holds the partition,
// and not at all when the worker has to stop at once: what became of a cycle may not be known before brokers are back, and the
// committer, which asks until then, is stopped after this. It reports whether nothing was left undone, which is also so for a partition
// that never ran, or is no longer ours; one that is given up is not among them, since its next owner has to find out.
func (p *partition) drainToStop(ctx context.Context, budget time.Duration) bool {
	if p.drains.CompareAndSwap(false, true) {
		p.drainTo(ctx, budget, stateGone)
	}
	select {
	case <-p.ended: // Another that drains it keeps to the budgets too.
	case <-p.w.stopped:
		return false
	case <-p.w.failed:
		return false
	}
	p.end(stateGone, ErrLost)
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	select {
	case <-p.detached:
		return !p.unclean.Load()
	case <-t.C:
	case <-p.w.stopped:
	case <-p.w.failed:
	}
	return false
}

// drainTo is the one drain of a partition. It holds no lock: others that want the same wait until the partition is let go of.
func (p *partition) drainTo(ctx context.Context, budget time.Duration, to state) {
	cause := ErrLost
	if to == stateHalted {
		cause = ErrHalted
	}
	if !p.move(stateRunning, stateDraining) {
		p.end(to, cause)
		return
	}
	p.closeIntake()
	began := time.Now()
	idle := p.awaitIdle(budget)
	if !idle {
		p.cancel(ErrDrainBudget)
		idle = p.awaitIdle(closeGrace)
	}
	p.unclean.Store(!p.lastCommit(idle) && !p.is().ended())
	p.w.log.InfoContext(ctx, "partition is drained", p.attr(), slog.Bool("idle", idle), slog.Bool("clean", !p.unclean.Load()),
		slog.Duration("took", time.Since(began)))
	p.end(to, cause)
}

// awaitIdle waits until nothing can add an effect any more. It gives up after the limit, and when the partition has ended or the
// worker stops at once.
func (p *partition) awaitIdle(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.mu.idle:
		return true
	case <-t.C:
	case <-p.ended:
	case <-p.w.stopped:
	}
	return false
}

// lastCommit commits what is left and marks the partition clean, if it is.
func (p *partition) lastCommit(idle bool) bool {
	p.final.Store(idle)
	settled := make(chan error, 1)
	err := p.store.Add(&statestore.Effect{Offset: statestore.NoOffset, Urgent: true, Settled: func(err error) { settled <- err }})
	if err != nil {
		return false
	}
	t := time.NewTimer(p.w.cfg.CommitBudget)
	defer t.Stop()
	select {
	case err := <-settled:
		return err == nil && idle
	case <-t.C:
	case <-p.ended:
	case <-p.w.stopped:
	}
	return false
}

// announce commits where the partition stands before its first record is handled: an input without a committed offset is pinned
// where it begins, and a clean mark is taken away before there is something in flight.
func (p *partition) announce(ctx context.Context) {
	err := p.store.Add(&statestore.Effect{Offset: statestore.NoOffset, Urgent: true, Settled: func(err error) {
		if err == nil {
			close(p.opened)
		}
	}})
	if err != nil {
		p.w.log.DebugContext(ctx, "partition ended before it began", p.attr(), slog.Any("error", err))
	}
}
