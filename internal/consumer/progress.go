package consumer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
)

// restoreProgress is read by the status and the log while the restore goroutine writes it.
type restoreProgress struct {
	// from, position and target are changelog offsets, stable the one up to which all transactions are decided.
	from, position, target, stable atomic.Int64
	records, bytes                 atomic.Int64
	// began is when the reading began, as Unix nanoseconds; how says where.
	began atomic.Int64
	how   atomic.Pointer[string]
}

func (r *restoreProgress) begin(now time.Time) {
	r.stable.Store(-1)
	r.began.Store(now.UnixNano())
}

// plan fixes what there is to read.
func (r *restoreProgress) plan(from, target int64, how string) {
	r.from.Store(from)
	r.position.Store(from)
	r.target.Store(target)
	r.how.Store(&how)
}

func (r *restoreProgress) took() time.Duration { return time.Since(time.Unix(0, r.began.Load())) }

// status sums up how far it is. A restore that waits for its place, or for the brokers, has no target yet.
func (r *restoreProgress) status() *RestoreStatus {
	s := &RestoreStatus{Position: r.position.Load(), Target: r.target.Load(), Records: r.records.Load(), Bytes: r.bytes.Load()}
	how := r.how.Load()
	if how == nil {
		return s
	}
	s.How = *how
	done, all := s.Position-r.from.Load(), s.Target-r.from.Load()
	s.Percent = 100
	if all > 0 {
		s.Percent = 100 * float64(done) / float64(all)
	}
	if done > 0 {
		s.SecondsLeft = r.took().Seconds() * float64(all-done) / float64(done)
	}
	if stable := r.stable.Load(); stable >= 0 && s.Position >= stable && s.Position < s.Target {
		s.Waiting = "a transaction of another worker is not decided yet"
	}
	return s
}

// reportRestored says, once per restore, what it took.
func (p *partition) reportRestored(ctx context.Context, pos statestore.Position) {
	r := &p.restore
	took, how := r.took(), ""
	if h := r.how.Load(); h != nil {
		how = *h
	}
	p.w.metrics.restored(ctx, took, r.records.Load(), r.bytes.Load())
	p.w.log.InfoContext(ctx, "partition is restored", p.attr(), slog.String("how", how), slog.Int64("records", r.records.Load()),
		slog.Int64("bytes", r.bytes.Load()), slog.Float64("seconds", took.Seconds()), slog.Int64("from", r.from.Load()), slog.Int64("to", pos.ChangelogNext))
}

// progressInterval is how often a restore that lasts is reported.
const progressInterval = 5 * time.Second

// reportProgress says how far restores are, while they last, and which partitions wait for their committed offset for longer than
// any transaction may hold it.
func (w *Worker) reportProgress(ctx context.Context) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	missed := make(map[int32]missedOffset)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, p := range w.all() {
			switch p.is() {
			case stateAssigned:
				missed[p.id] = w.awaitOffset(ctx, p, missed[p.id])
			case stateRestoring:
				delete(missed, p.id)
				p.reportProgress(ctx)
			case stateRunning, stateDraining, stateHalted:
				delete(missed, p.id)
			case stateGone: // The client gives up its session now and then, and joins again.
			}
		}
	}
}

// missedOffset is since when a partition waits for its committed offset, and whether that was said.
type missedOffset struct {
	since  time.Time
	warned bool
}

// awaitOffset warns, once, of a committed offset that does not become stable.
func (w *Worker) awaitOffset(ctx context.Context, p *partition, m missedOffset) missedOffset {
	switch {
	case m.since.IsZero():
		return missedOffset{since: time.Now()}
	case m.warned || time.Since(m.since) < 2*w.ring.Timeout():
		return m
	}
	p.mu.Lock()
	p.mu.waiting = "the committed offset is not stable: a transaction of another worker hangs, or the brokers do not answer"
	p.mu.Unlock()
	w.log.WarnContext(ctx, "committed offset is not stable for longer than a transaction may take; see whether one hangs", p.attr())
	return missedOffset{m.since, true}
}

func (p *partition) reportProgress(ctx context.Context) {
	if p.restore.began.Load() == 0 || p.restore.took() < progressInterval {
		return
	}
	s := p.restore.status()
	p.w.log.InfoContext(ctx, "partition is being restored", p.attr(), slog.Float64("percent", s.Percent), slog.Int64("records", s.Records),
		slog.Int64("bytes", s.Bytes), slog.Int64("position", s.Position), slog.Int64("target", s.Target),
		slog.Float64("seconds_left", s.SecondsLeft), slog.String("how", s.How), slog.String("waiting", s.Waiting))
}
