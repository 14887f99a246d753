package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
)

// ErrNoProgress is wrapped by what ends a worker that is stuck. Such a worker leaves its group for good, also if it is a static
// member: its heartbeats go on however stuck it is, and others may do better.
var ErrNoProgress = errors.New("the worker makes no progress")

var (
	errStalled   = fmt.Errorf("%w: effects wait and no commit cycle succeeds, though the group is healthy", ErrNoProgress)
	errPollStuck = fmt.Errorf("%w: the poll goroutine is stuck", ErrNoProgress)
	errWedged    = fmt.Errorf("%w: records wait and none is taken, though there is room", ErrNoProgress)
)

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
	leaders, last := time.Now(), time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := time.Now(); now.Sub(last) > pauseSeen {
			w.forgive(now)
		}
		last = time.Now()
		w.keepFetching()
		if !w.groupAnswers() {
			w.committer.forgive(last)
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

// keepFetching makes the client fetch again that has stopped to. A fetch that begins just when a rebalance or SetOffsets replaces the
// client's session may end with the old one, and take the new one's request to begin with it (the hardFinish of kgo's loopFetch, 1.22);
// nobody asks again then, and the partitions of a broker stand still until something else changes. To resume partitions asks every
// broker's fetch to go on, also if there are none to resume, and costs nothing while it does.
func (w *Worker) keepFetching() {
	if g := w.group(); g != nil {
		g.ResumeFetchPartitions(nil)
	}
}

// pauseSeen is how late the watchdog may be before it takes the whole process to have been stopped. Its own requests take less.
const pauseSeen = leaderInterval

// forgive lets the times begin anew that stood still with the process: who was stopped for minutes has not been stuck.
func (w *Worker) forgive(now time.Time) {
	w.beat.Store(now.UnixNano())
	w.committer.forgive(now)
	for _, p := range w.all() {
		p.seen.at = now
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
	switch {
	case w.stalled():
		return errStalled
	case w.pollStuck():
		return errPollStuck
	}
	now := time.Now()
	for _, p := range w.all() {
		if p.wedged(now) {
			return fmt.Errorf("%w: partition %d", errWedged, p.id)
		}
	}
	return nil
}

// pollGrace is how long the poll goroutine may take to go round before the worker counts as stuck; it is woken more often.
const pollGrace = 3 * leaderInterval

// pollStuck is false for a worker that drains: it polls no more.
func (w *Worker) pollStuck() bool {
	w.mu.Lock()
	closing := w.mu.closing
	w.mu.Unlock()
	beat := w.beat.Load()
	return !closing && beat != 0 && time.Since(time.Unix(0, beat)) > pollGrace
}

// seen is what the watchdog last saw of a partition: how many records were taken, and since when that has not changed, or need not.
// It is only used by the watchdog.
type seen struct {
	taken uint64
	at    time.Time
}

// wedged reports whether the dispatcher has taken nothing for too long although records wait and nothing else does.
func (p *partition) wedged(now time.Time) bool {
	p.mu.Lock()
	taken, waiting := p.mu.taken, len(p.mu.backlog) > 0 && p.mu.waiting == ""
	p.mu.Unlock()
	if !waiting || taken != p.seen.taken || p.seen.at.IsZero() || p.hasToWait() {
		p.seen = seen{taken, now}
		return false
	}
	return now.Sub(p.seen.at) > p.w.cfg.Stall
}

// hasToWait reports whether there is a reason not to take a record now: the first commit of the assignment, a full window, a full
// buffer.
func (p *partition) hasToWait() bool {
	if p.is() != stateRunning || len(p.window) == cap(p.window) || len(p.w.slots) == cap(p.w.slots) {
		return true
	}
	if p.opened != nil {
		select {
		case <-p.opened:
		default:
			return true
		}
	}
	return p.full()
}

// stalled counts only the time in which the group answers: that no cycle succeeds while brokers are away is no fault of ours.
func (w *Worker) stalled() bool {
	since := w.committer.since.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > w.cfg.Stall && w.groupAnswers()
}

// groupAnswers reports whether the group has answered lately; a session may be longer than what counts as stuck.
func (w *Worker) groupAnswers() bool {
	p := w.pulse.Load()
	return p != nil && p.fresh(min(w.cfg.SessionTimeout, w.cfg.Stall/2))
}
