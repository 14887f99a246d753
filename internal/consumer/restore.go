package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
)

// restoreProgress is read by the status while the restore goroutine writes it.
type restoreProgress struct {
	position, target, records atomic.Int64
	began                     atomic.Int64
}

// retentionMargin is the part of delete.retention.ms that local state may not come near.
const retentionMargin = 10

// restoreState brings the partition's state up to date and opens it. It runs on a goroutine of its own, after the committed
// offset was fetched stably: from then on no older owner can commit, and the high watermark taken now lies beyond everything that
// one has. When an earlier assignment of the same partition is still reading, it waits for it.
func (p *partition) restoreState(ctx context.Context, c committed, earlier <-chan struct{}) {
	defer close(p.restored)
	began := time.Now()
	err := p.restoreTurn(ctx, c, earlier)
	switch {
	case err == nil:
		p.w.metrics.restored(ctx, time.Since(began), p.restore.records.Load())
	case p.intake.Err() != nil: // Lost or stopped meanwhile: what was applied is kept, with its position.
	default:
		p.halt(ctx, err)
	}
}

func (p *partition) restoreTurn(ctx context.Context, c committed, earlier <-chan struct{}) error {
	if p.prior != nil {
		p.prior.end(stateGone, ErrLost)
		select {
		case <-p.prior.detached:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		p.prior = nil
	}
	select {
	case <-earlier:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case p.w.restores <- struct{}{}:
		defer func() { <-p.w.restores }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.restore.began.Store(p.w.deps.Now().UnixMilli())
	pos, err := p.readChangelog(ctx, c)
	if err != nil {
		return fmt.Errorf("restore partition %d: %w", p.id, err)
	}
	return p.open(ctx, c, pos)
}

// readChangelog applies the changelog up to its end as it is now.
func (p *partition) readChangelog(ctx context.Context, c committed) (statestore.Position, error) {
	ends, err := p.bounds(ctx)
	if err != nil {
		return statestore.Position{}, err
	}
	start, target := ends.From, ends.To
	p.restore.target.Store(target)
	p.changelogFrom = wholeFrom(c, start)
	pos, err := p.resumePoint(ctx, c, start, target)
	if err != nil {
		return statestore.Position{}, err
	}
	if pos, err = p.apply(ctx, pos, target); errors.Is(err, errOutOfRange) {
		// The log start has moved while we read. Once is bad luck, twice is for a person.
		p.w.log.WarnContext(ctx, "changelog was cut while it was read; restoring anew", p.attr())
		if ends, err = p.bounds(ctx); err != nil {
			return statestore.Position{}, err
		}
		if err = p.whole(c, ends); err != nil {
			return statestore.Position{}, err
		}
		p.changelogFrom = wholeFrom(c, ends.From)
		if pos, err = p.wiped(ends.From); err != nil {
			return statestore.Position{}, err
		}
		pos, err = p.apply(ctx, pos, target)
	}
	if err != nil {
		return statestore.Position{}, err
	}
	return pos, reached(c, pos.ChangelogNext)
}

// How long a restore waits before it asks again.
const (
	firstRestoreRetry   = 250 * time.Millisecond
	longestRestoreRetry = 5 * time.Second
)

// retried repeats a request that the brokers could not answer, or refuse: rights can be given while the worker runs.
func retried[T any](ctx context.Context, w *Worker, f func() (T, error)) (T, error) {
	refused := false
	again := backoff{first: firstRestoreRetry, limit: longestRestoreRetry}
	for {
		v, err := f()
		if err == nil || ctx.Err() != nil || isFinal(err) {
			if refused && err == nil {
				w.calm(sourceRestore)
			}
			return v, err
		}
		if refused = isRefusal(err); refused {
			w.trouble(ctx, sourceRestore, err)
		}
		w.metrics.retry(ctx, retryRestore)
		if err := again.wait(ctx); err != nil {
			return v, err
		}
	}
}

// bounds are the log start and the high watermark of the changelog.
func (p *partition) bounds(ctx context.Context) (offsetRange, error) {
	return retried(ctx, p.w, func() (offsetRange, error) {
		start, end, err := p.w.changelog.bounds(ctx, p.id)
		return offsetRange{From: start, To: end}, err
	})
}

// resumePoint returns the local position if it is certainly valid, and otherwise wipes the partition.
func (p *partition) resumePoint(ctx context.Context, c committed, start, target int64) (statestore.Position, error) {
	pos, found, err := p.w.deps.Store.Position(p.id)
	if err != nil && !errors.Is(err, statestore.ErrFormat) {
		return pos, err
	}
	why := "there is no local state"
	if found && err == nil {
		if why, err = p.stale(ctx, pos, c, start, target); err != nil {
			return pos, err
		}
		if why == "" {
			p.w.log.InfoContext(ctx, "partition resumes from local state", p.attr(),
				slog.Int64("from", pos.ChangelogNext), slog.Int64("to", target))
			p.warnTruncated(ctx, c, offsetRange{From: start, To: target})
			pos.ChangelogNext = max(pos.ChangelogNext, start)
			return pos, nil
		}
	}
	if err := p.whole(c, offsetRange{From: start, To: target}); err != nil {
		return pos, err
	}
	p.w.log.InfoContext(ctx, "partition is restored from the beginning of its changelog", p.attr(),
		slog.String("because", why), slog.Int64("from", start), slog.Int64("to", target))
	return p.wiped(start)
}

func (p *partition) wiped(start int64) (statestore.Position, error) {
	pos := statestore.Position{ChangelogID: p.w.cfg.Changelog.ID, ChangelogNext: start, LeaderEpoch: -1}
	if err := p.w.deps.Store.Wipe(p.id); err != nil {
		return pos, fmt.Errorf("drop local state: %w", err)
	}
	return pos, nil
}

// stale says why the local state cannot be trusted to be a beginning of the changelog; nothing when it can.
func (p *partition) stale(ctx context.Context, pos statestore.Position, c committed, start, target int64) (string, error) {
	retention := p.w.cfg.ChangelogDeleteRetention
	switch {
	case pos.ChangelogID != p.w.cfg.Changelog.ID:
		return "the local state is of another changelog topic", nil
	case pos.ChangelogNext < start && !hasAll(c, pos.ChangelogNext):
		return "the changelog begins after the local state ends", nil
	case pos.ChangelogNext > target:
		return "the local state is ahead of the changelog", nil
	case p.w.deps.Now().Sub(pos.At) > retention-retention/retentionMargin:
		return "the local state is older than tombstones are kept", nil
	case pos.ChangelogNext > start && pos.LeaderEpoch < 0:
		return "the leader epoch of the local state is not known", nil
	}
	recorded, found, err := p.recorded()
	if err != nil {
		return "the local position cannot be read", nil //nolint:nilerr // The changelog has it.
	}
	if found && c.offset >= 0 && recorded.TopicID == p.w.cfg.Turns.ID && recorded.Next > c.offset {
		return "the local state is ahead of the group", nil
	}
	if pos.ChangelogNext == start {
		return "", nil
	}
	end, err := retried(ctx, p.w, func() (int64, error) { return p.w.changelog.epochEnd(ctx, p.id, pos.LeaderEpoch) })
	if err != nil {
		return "", err
	}
	if end < pos.ChangelogNext {
		return "the changelog was cut below the local state", nil
	}
	return "", nil
}

// apply reads committed records until the position is at the target, one fetch at a time, each in one batch with its position.
func (p *partition) apply(ctx context.Context, pos statestore.Position, target int64) (statestore.Position, error) {
	pos.Incarnation, pos.CID = 0, 0
	nothing := 0
	for pos.ChangelogNext < target {
		c, err := retried(ctx, p.w, func() (chunk, error) { return p.w.changelog.fetch(ctx, p.id, pos.ChangelogNext) })
		if err != nil {
			return pos, err
		}
		// What lies last may have been compacted away, records and markers alike. The broker then has nothing to send although
		// all transactions are decided; asked twice, since it may also be throttling.
		if nothing++; !c.empty || c.stable < target {
			nothing = 0
		} else if nothing > 1 {
			c.next = target
		}
		if c.next == pos.ChangelogNext {
			continue
		}
		pos.ChangelogNext = c.next
		pos.LeaderEpoch = max(pos.LeaderEpoch, c.epoch)
		if err := p.applyBatch(c.records, &pos); err != nil {
			return pos, err
		}
	}
	return pos, p.applyBatch(nil, &pos)
}

// applyBatch stores records, the position after them, and the time at which they were read: a tombstone that comes later is kept
// for longer than from then.
func (p *partition) applyBatch(records []statestore.Record, pos *statestore.Position) error {
	pos.At = p.w.deps.Now()
	if err := p.w.deps.Store.Restore(p.id, records, *pos); err != nil {
		return fmt.Errorf("apply the changelog: %w", err)
	}
	p.restore.position.Store(pos.ChangelogNext)
	p.restore.records.Add(int64(len(records)))
	return nil
}

// recorded reads the input position from the state.
func (p *partition) recorded() (inputPosition, bool, error) {
	value, found, err := p.w.deps.Store.Attach(p.id, func(bool) {}).Get(positionKey)
	if err != nil || !found {
		return inputPosition{}, false, err
	}
	pos, err := decodePosition(value)
	return pos, err == nil, err
}

// suspectWindows is how many records from the start on, in windows, the last owner may have delivered: one window of turns that
// ran, and one for turns that had ended and were not committed.
const suspectWindows = 2

// open makes the partition ready to run from its restored state, and hands it to the poll goroutine.
func (p *partition) open(ctx context.Context, c committed, pos statestore.Position) error {
	in, err := p.input(ctx, c)
	if err != nil {
		return err
	}
	m, ours := txn.ParseMetadata(c.metadata)
	if ours {
		p.w.ring.SetCID(m.CID)
	}
	p.committed, p.baseline, p.changelogNext = c, c.metadata, pos.ChangelogNext
	p.store = p.w.deps.Store.Attach(p.id, p.w.committer.notify)
	if c.offset != in.Next || !ours || m.Clean {
		p.opened = make(chan struct{})
	}
	p.assignment = &Assignment{
		Topic: p.w.cfg.Turns.Name, Partition: p.id, Epoch: p.epoch, Start: in.Next,
		Clean: c.offset < 0 || (ours && m.Clean), State: p.store, permit: p.permit, draining: p.intake.Done(),
	}
	// A process that takes a partition back which it had lost is the proof that none of its turns killed it.
	if p.assignment.Died = !p.assignment.Clean && (!ours || m.Incarnation != p.w.cfg.Txn.Incarnation); p.assignment.Died {
		p.suspects = suspectWindows * p.w.cfg.Window
	}
	p.mu.Lock()
	p.mu.tracker = newTracker(in.Next, in.Done)
	p.mu.committed, p.mu.fetched = in.Next, in.Next
	p.mu.Unlock()
	if p.handler, err = p.w.deps.Handler.Open(ctx, p.assignment); err != nil {
		p.store.Detach()
		return fmt.Errorf("open partition %d: %w", p.id, err)
	}
	p.w.activate(p)
	return nil
}

// input decides where consumption begins: the later of what the group committed and what the state recorded, for the same topic.
func (p *partition) input(ctx context.Context, c committed) (inputPosition, error) {
	turns := p.w.cfg.Turns
	rec, found, err := p.recorded()
	if err != nil {
		return rec, fmt.Errorf("read the input position of partition %d: %w", p.id, err)
	}
	if found && rec.TopicID != turns.ID {
		p.w.log.WarnContext(ctx, "input topic is another one than the state knows; its recorded position is dropped", p.attr())
		rec, found = inputPosition{}, false
		if _, ours := txn.ParseMetadata(c.metadata); ours {
			c.offset = -1 // Brokers drop it with its topic as a rule. Committed with that position, it is of the old topic too.
		}
	}
	if found && rec.Partitions != turns.Partitions {
		err := &PartitionCountError{Topic: turns.Name, Was: rec.Partitions, Is: turns.Partitions}
		p.w.fail(ctx, err)
		return rec, err
	}
	rec.TopicID, rec.Partitions = turns.ID, turns.Partitions
	switch {
	case c.offset > rec.Next || !found && c.offset >= 0:
		rec.Next = c.offset
	case !found:
		start, err := retried(ctx, p.w, func() (int64, error) {
			return listOffset(ctx, p.w.changelog.cl, turns.Name, p.id, earliestOffset)
		})
		if err != nil {
			return rec, err
		}
		rec.Next = start
	}
	return rec, nil
}

// PartitionCountError says that the input topic has another number of partitions than its state was made with.
type PartitionCountError struct {
	Topic   string
	Was, Is int32
}

// Error says what happened and how to go on.
func (e *PartitionCountError) Error() string {
	return fmt.Sprintf("topic %s had %d partitions and now has %d: keys have moved, so order, history and the record of turns already done no longer hold; "+
		"to migrate, let the workers finish what is on the topic, make a new topic with the new number of partitions under another name, "+
		"and start workers for it with another LATHE_APP, which gives them state of their own", e.Topic, e.Was, e.Is)
}
