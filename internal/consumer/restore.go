package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
)

// errUnknownLog says that the brokers have not known the changelog for longer than one that starts may not.
var errUnknownLog = errors.New("the topic was deleted")

// unknownGrace is how long brokers may not know the changelog's partition: one that has just started may not know it yet.
const unknownGrace = 30 * time.Second

// restoreState brings the partition's state up to date and opens it. It runs on a goroutine of its own, after the committed
// offset was fetched stably: from then on no older owner can commit, and the high watermark taken now lies beyond everything that
// one has. When an earlier assignment of the same partition is still reading, it waits for it.
func (p *partition) restoreState(ctx context.Context, c committed, earlier <-chan struct{}) {
	defer close(p.restored)
	err := p.restoreTurn(ctx, c, earlier)
	if err != nil && p.intake.Err() == nil { // Else lost or stopped meanwhile: what was applied is kept, with its position.
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
	p.mu.Lock()
	p.mu.waiting = ""
	p.mu.Unlock()
	p.restore.begin(time.Now())
	pos, err := p.readChangelog(ctx, c)
	if err == nil {
		err = p.keep()
	}
	if err != nil {
		return fmt.Errorf("restore partition %d: %w", p.id, err)
	}
	p.reportRestored(ctx, pos)
	return p.open(ctx, c, pos)
}

// keep makes what was read survive: a whole changelog before the partition runs, so that no kill costs it again, and the little that
// local state lacked within the second, since a partition that only has to catch up should not wait for a disk.
func (p *partition) keep() error {
	switch how := p.restore.how.Load(); {
	case p.restore.records.Load() == 0:
		return nil
	case how != nil && *how == fromLocal:
		p.w.dirty.Store(true)
		return nil
	}
	if err := p.w.deps.Store.Sync(); err != nil {
		return fmt.Errorf("keep what was read: %w", err)
	}
	return nil
}

// readChangelog applies the changelog up to its end as it is now.
func (p *partition) readChangelog(ctx context.Context, c committed) (statestore.Position, error) {
	ends, err := p.bounds(ctx)
	if err != nil {
		return statestore.Position{}, err
	}
	p.changelogFrom = wholeFrom(c, ends.From)
	pos, how, err := p.resumePoint(ctx, c, ends)
	if err != nil {
		return statestore.Position{}, err
	}
	p.restore.plan(pos.ChangelogNext, ends.To, how)
	if pos, err = p.apply(ctx, pos, ends.To); errors.Is(err, errOutOfRange) {
		// The log start has moved while we read. Once is bad luck, twice is for a person.
		p.w.log.WarnContext(ctx, "changelog was cut while it was read; restoring anew", p.attr())
		pos, err = p.readAnew(ctx, c)
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

// readAnew reads everything that the changelog has now.
func (p *partition) readAnew(ctx context.Context, c committed) (statestore.Position, error) {
	ends, err := p.bounds(ctx)
	if err != nil {
		return statestore.Position{}, err
	}
	if err := p.whole(c, ends); err != nil {
		return statestore.Position{}, err
	}
	p.changelogFrom = wholeFrom(c, ends.From)
	pos, err := p.wiped(ends.From)
	if err != nil {
		return pos, err
	}
	p.restore.plan(ends.From, ends.To, readFromStart("the changelog was cut while it was read"))
	return p.apply(ctx, pos, ends.To)
}

// retried repeats a request that the brokers could not answer, or refuse: rights can be given while the worker runs.
func retried[T any](ctx context.Context, w *Worker, f func() (T, error)) (T, error) {
	refused := false
	again := txn.Backoff{First: firstRestoreRetry, Limit: longestRestoreRetry, Spread: true}
	var unknown time.Time
	for {
		v, err := f()
		if err == nil || ctx.Err() != nil || isFinal(err) {
			if refused && err == nil {
				w.calm(sourceRestore)
			}
			return v, err
		}
		switch {
		case !errors.Is(err, kerr.UnknownTopicOrPartition):
			unknown = time.Time{}
		case unknown.IsZero():
			unknown = time.Now()
		case time.Since(unknown) > unknownGrace:
			return v, fmt.Errorf("%w: %w", errUnknownLog, err)
		}
		if refused = isRefusal(err); refused {
			w.trouble(ctx, sourceRestore, err)
		}
		w.metrics.retry(ctx, retryRestore)
		if err := again.Wait(ctx); err != nil {
			return v, err
		}
	}
}

// bounds are the log start and the high watermark of the changelog. The leader's epoch is known after it: the position that the
// first cycle writes could not be trusted without.
func (p *partition) bounds(ctx context.Context) (offsetRange, error) {
	return retried(ctx, p.w, func() (offsetRange, error) {
		if p.w.changelog.epoch(p.id) < 0 {
			if err := p.w.changelog.refresh(ctx); err != nil {
				return offsetRange{}, err
			}
		}
		start, end, err := p.w.changelog.bounds(ctx, p.id)
		return offsetRange{From: start, To: end}, err
	})
}

// apply reads committed records until the position is at the target.
func (p *partition) apply(ctx context.Context, pos statestore.Position, target int64) (statestore.Position, error) {
	pos.Incarnation, pos.CID = 0, 0
	r := reading{p: p, pos: pos, target: target, again: txn.Backoff{First: changelogRetry, Limit: longestChangelogRetry, Spread: true}}
	for r.pos.ChangelogNext < target {
		if err := r.step(ctx); err != nil {
			return r.pos, err
		}
	}
	return r.pos, p.applyBatch(nil, 0, &r.pos)
}

// reading is one pass over the changelog.
type reading struct {
	p      *partition
	pos    statestore.Position
	target int64
	// nothing counts answers without anything in them although all is decided; unknown is since when brokers do not know the
	// partition; again is the wait after an error.
	nothing int
	unknown time.Time
	again   txn.Backoff
}

// step fetches once and applies what came. It holds one of the worker's places for restores while it does, and no longer: however
// many partitions there are, what they hold in memory is bounded, and one that is large or stuck keeps no other waiting.
func (r *reading) step(ctx context.Context) error {
	w, was := r.p.w, r.pos.ChangelogNext
	select {
	case w.restores <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	rp, fetchErr := w.changelog.attempt(ctx, r.p.id, was)
	var err error
	if fetchErr == nil {
		err = r.take(rp)
	}
	<-w.restores
	switch {
	case fetchErr != nil:
		return r.failed(ctx, fetchErr)
	case err != nil: // What was fetched cannot be applied; to go on behind it would leave it out.
		return err
	case r.pos.ChangelogNext > was:
		r.unknown = time.Time{}
		r.again.Reset()
		w.calm(sourceRestore)
		return nil
	}
	return sleep(ctx, changelogRetry)
}

// take applies the answer to a fetch; nil when the broker throttles us.
func (r *reading) take(rp *kmsg.FetchResponseTopicPartition) error {
	if rp == nil {
		return nil
	}
	r.p.restore.stable.Store(rp.LastStableOffset)
	if len(rp.RecordBatches) == 0 && rp.LastStableOffset >= r.target {
		// What lies last may have been compacted away, records and markers alike. The broker then has nothing to send although
		// all transactions are decided; asked twice, since it may also be throttling.
		if r.nothing++; r.nothing > 1 {
			r.pos.ChangelogNext = r.target
		}
		return nil
	}
	r.nothing = 0
	return r.p.w.changelog.chunks(rp, r.pos.ChangelogNext, func(c chunk) error {
		if c.next == r.pos.ChangelogNext {
			return nil
		}
		r.pos.ChangelogNext, r.pos.LeaderEpoch = c.next, max(r.pos.LeaderEpoch, c.epoch)
		return r.p.applyBatch(c.records, c.bytes, &r.pos)
	})
}

// failed waits after an error of a fetch that may pass, and returns any other.
func (r *reading) failed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isRefusal(err): // Rights can be given while the worker runs.
		r.p.w.trouble(ctx, sourceRestore, err)
	case !mayPass(err):
		return err
	case !errors.Is(err, kerr.UnknownTopicOrPartition):
		r.unknown = time.Time{}
	case r.unknown.IsZero():
		r.unknown = time.Now()
	case time.Since(r.unknown) > unknownGrace:
		return fmt.Errorf("%w: %w", errUnknownLog, err)
	}
	r.p.w.changelog.retry(ctx)
	return r.again.Wait(ctx)
}

// applyBatch stores records, the position after them, and the time at which they were read: a tombstone that comes later is kept
// for longer than from then.
func (p *partition) applyBatch(records []statestore.Record, bytes int, pos *statestore.Position) error {
	pos.At = p.w.deps.Now()
	if err := p.w.deps.Store.Restore(p.id, records, *pos); err != nil {
		return fmt.Errorf("apply the changelog: %w", err)
	}
	p.restore.position.Store(pos.ChangelogNext)
	p.restore.records.Add(int64(len(records)))
	p.restore.bytes.Add(int64(bytes))
	return nil
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
		Topic: p.w.cfg.Turns.Name, TopicID: p.w.cfg.Turns.ID, Partition: p.id, Epoch: p.epoch, Start: in.Next,
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
