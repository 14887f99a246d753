package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
)

var errStalled = errors.New("effects wait and no commit cycle succeeds, though the group is healthy")

const (
	watchInterval = time.Second
	// leaderInterval is how often the leaders of the changelog are asked for. Local state is trusted only when the leader epoch
	// beside it is not older than its records.
	leaderInterval = 30 * time.Second
)

// watch looks after what nobody calls: heartbeats of the group go on even when the worker is stuck, so it has to see that itself.
func (w *Worker) watch(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	leaders := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if w.dirty.CompareAndSwap(true, false) {
			if err := w.deps.Store.Sync(); err != nil {
				w.fail(ctx, err)
				return
			}
		}
		if time.Since(leaders) >= leaderInterval {
			leaders = time.Now()
			w.refreshLeaders(ctx)
			w.touch(ctx)
			w.wake()
		}
		if err := w.overdue(); err != nil {
			w.fail(ctx, err)
			return
		}
	}
}

// touchDivisor is the part of delete.retention.ms after which an idle partition is committed once more.
const touchDivisor = 8

// touch commits partitions that have had nothing to commit for long: local state is trusted only while it is younger than the
// changelog keeps tombstones, so the disk of an idle worker would be worth nothing after a day.
func (w *Worker) touch(ctx context.Context) {
	for _, p := range w.all() {
		if p.is() != stateRunning || time.Since(time.Unix(0, p.touched.Load())) < w.cfg.ChangelogDeleteRetention/touchDivisor {
			continue
		}
		if err := p.store.Add(&statestore.Effect{Offset: statestore.NoOffset}); err != nil {
			w.log.DebugContext(ctx, "partition ended before it was touched", p.attr(), slog.Any("error", err))
		}
	}
}

func (w *Worker) refreshLeaders(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaderInterval/2)
	defer cancel()
	if err := w.changelog.refresh(ctx); err != nil {
		w.log.DebugContext(ctx, "leaders of the changelog are not refreshed", slog.Any("error", err))
	}
	if g := w.group(); g != nil {
		if l, _, err := g.PartitionLeader(w.cfg.Turns.Name, w.cfg.Turns.Partitions); err == nil && l >= 0 {
			w.fail(ctx, &PartitionCountError{Topic: w.cfg.Turns.Name, Was: w.cfg.Turns.Partitions, Is: w.cfg.Turns.Partitions + 1})
		}
	}
}

// wake makes the poll goroutine go round, which shows that it can.
func (w *Worker) wake() {
	w.mu.Lock()
	wake := w.mu.wakePoll
	w.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// overdue says why the worker should not go on: cycles fail for too long, or the brokers refuse it for too long.
func (w *Worker) overdue() error {
	if t := w.troubled(); t != nil {
		if time.Now().After(t.until) {
			return fmt.Errorf("the brokers refuse the worker for too long: %w", t.err)
		}
		return nil
	}
	if w.stalled() {
		return errStalled
	}
	return nil
}

func (w *Worker) stalled() bool {
	since := w.committer.since.Load()
	p := w.pulse.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > w.cfg.Stall && p != nil && p.fresh(w.cfg.SessionTimeout)
}
