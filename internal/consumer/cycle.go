package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
)

// committer makes effects durable, one cycle after another, on one goroutine. An effect that somebody waits for starts a cycle as
// soon as the last one is done; the others wait a little for company.
type committer struct {
	w *Worker
	// urgent and soft are filled by whoever adds an effect, of either kind, and read by the committer.
	urgent, soft chan struct{}
	waker        waker
	// since is when the first cycle began of those that have not succeeded yet, as Unix nanoseconds, or from when on that counts; 0
	// when there is none.
	since atomic.Int64

	// What follows is only used by the committer's goroutine.

	first   int         // of the partitions, to begin the next cycle with
	room    recordRoom  // for the records of the next cycle
	again   txn.Backoff // after a cycle that was aborted
	rebuffs int         // cycles in a row that the group refused
}

// How long an aborted cycle waits before it is tried again.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

func newCommitter(w *Worker) *committer {
	return &committer{
		w: w, urgent: make(chan struct{}, 1), soft: make(chan struct{}, 1), waker: make(waker, wakeAhead), again: txn.Backoff{First: minBackoff, Limit: maxBackoff},
	}
}

// notify is called for each effect that is added.
func (c *committer) notify(urgent bool) {
	if urgent {
		signal(c.urgent)
	} else {
		signal(c.soft)
	}
}

// forgive lets the time begin anew that no cycle has succeeded for.
func (c *committer) forgive(now time.Time) {
	if since := c.since.Load(); since != 0 {
		c.since.CompareAndSwap(since, now.UnixNano())
	}
}

// run commits until ctx ends, and closes the waker.
func (c *committer) run(ctx context.Context) {
	defer close(c.waker)
	for c.wait(ctx) {
		switch err := c.cycle(ctx); {
		case err == nil:
			c.again.Reset()
			c.rebuffs = 0
		case errors.Is(err, errWorkerFailed):
			return
		default:
			c.w.metrics.retry(ctx, retryCycle)
			if c.again.Wait(ctx) != nil {
				return
			}
			signal(c.urgent)
		}
	}
}

// wait returns when a cycle is due, false when ctx has ended.
func (c *committer) wait(ctx context.Context) bool {
	if len(c.urgent) == 0 { // There is time; and what the last cycle wrote need not be kept until the next.
		c.room = recordRoom{}
	}
	select {
	case <-c.urgent:
	case <-ctx.Done():
		return false
	case <-c.soft:
		t := time.NewTimer(c.w.cfg.Linger)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.urgent:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case <-c.soft:
	default:
	}
	return ctx.Err() == nil
}

// openCycle is the cycle under way. Whoever lets go of a partition waits until the cycle that holds it is settled.
type openCycle struct {
	holds map[*partition]bool
	done  chan struct{}
}

// share is one partition's part of a cycle.
type share struct {
	p     *partition
	batch *statestore.Batch
	// position is the encoded input position; next its offset.
	position string
	next     int64
	clean    bool
}

var errWorkerFailed = errors.New("the worker has failed")

// cycle runs one cycle with what waits. It returns an error when that has to be tried again.
func (c *committer) cycle(ctx context.Context) error {
	c.since.CompareAndSwap(0, time.Now().UnixNano())
	call(ctx, c.w.deps.Hooks.BeforeTake)
	open := c.w.beginCycle()
	defer c.w.endCycle(open)
	shares, more := c.take(ctx, open)
	c.w.trimCycle(open, shares)
	if len(shares) == 0 {
		c.since.Store(0)
		return nil
	}
	group := c.w.membership()
	if c.foreign(ctx, shares, group.MemberID) {
		signal(c.urgent)
		return nil
	}
	records := c.records(shares)
	res, err := c.w.ring.Commit(ctx, c.request(shares, group, records.list))
	if err != nil {
		return c.fatal(ctx, shares, err)
	}
	c.lose(ctx, res.Lost)
	if res.Outcome != txn.Committed {
		for _, s := range shares {
			s.revert()
		}
		return c.aborted(ctx, shares, res.Err)
	}
	c.room = records // The brokers have acknowledged each, so the client is done with them.
	if err := c.settle(ctx, shares, &res); err != nil {
		return c.fatal(ctx, nil, err)
	}
	c.since.Store(0)
	c.w.calm(sourceCycle)
	if more {
		signal(c.urgent)
	}
	return nil
}

// take folds a prefix of each partition's effects, within the bounds of a cycle. It begins with another partition each time, so
// that a full cycle starves none, and reports whether something was left.
func (c *committer) take(ctx context.Context, open *openCycle) (shares []*share, more bool) {
	all := c.w.committing(open)
	bytes, records := c.w.cfg.CycleBytes, c.w.cfg.CycleRecords
	if limit := c.w.ring.CycleBytes(); limit > 0 {
		bytes = min(bytes, limit)
	}
	c.first++
	for i := range all {
		p := all[(i+c.first)%len(all)]
		waiting, _ := p.store.Pending()
		if waiting == 0 {
			continue
		}
		if bytes <= 0 || records <= 0 {
			return shares, true
		}
		batch, err := p.store.Take(bytes, records)
		if err != nil {
			p.halt(ctx, fmt.Errorf("fold the effects of partition %d: %w", p.id, err))
			continue
		}
		if batch == nil {
			continue
		}
		// In this order: the last effect of a drain is added after final is set, so a batch that has it is seen to be final; and
		// nothing is added behind what is final, so that what is left then is all there is.
		final := p.final.Load()
		left, _ := p.store.Pending()
		more = more || left > batch.Effects
		s := p.plan(batch)
		s.clean = final && left == batch.Effects
		shares = append(shares, s)
		records -= len(batch.Records) + len(batch.Outputs)
		bytes -= batchBytes(batch)
	}
	return shares, more
}

func batchBytes(b *statestore.Batch) int {
	n := 0
	for i := range b.Records {
		n += len(b.Records[i].Key) + len(b.Records[i].Value)
	}
	for _, o := range b.Outputs {
		n += len(o.Key) + len(o.Value)
	}
	return n
}

// plan fixes what the batch makes of the partition's offsets, and adds the position record when it changes. A batch that would
// write nothing gets it too, since a transaction without records is not ended.
func (p *partition) plan(batch *statestore.Batch) *share {
	in := inputPosition{TopicID: p.w.cfg.Turns.ID, Partitions: p.w.cfg.Turns.Partitions}
	p.mu.Lock()
	in.Next, in.Done = p.mu.tracker.Plan(batch.Offsets)
	p.mu.Unlock()
	s := &share{p: p, batch: batch, next: in.Next, position: string(in.encode())}
	if s.position != p.lastPosition || len(batch.Records)+len(batch.Outputs) == 0 {
		batch.Set(positionKey, []byte(s.position))
	}
	return s
}

func (s *share) revert() {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.mu.tracker.Revert()
}

// foreign reports whether a share's partition was given to another member than the one that would commit it now, which is lost
// then. A member that is nobody commits nothing; the ring sees to that.
func (c *committer) foreign(ctx context.Context, shares []*share, member string) bool {
	if member == "" || !slices.ContainsFunc(shares, func(s *share) bool { return s.p.member != member }) {
		return false
	}
	for _, s := range shares {
		s.revert()
	}
	c.w.loseForeign(ctx)
	return true
}

// request makes the cycle of its records and its offsets: one for every partition, moved or not, since that is the fence.
func (c *committer) request(shares []*share, group txn.Membership, records []*kgo.Record) *txn.Cycle {
	cycle := &txn.Cycle{Records: records, Group: group, Check: func() error { return check(shares) }}
	turns := c.w.cfg.Turns
	for _, s := range shares {
		cycle.Offsets = append(cycle.Offsets, txn.Offset{
			Topic: turns.Name, TopicID: turns.ID, Partition: s.p.id, Offset: s.next, LeaderEpoch: -1,
			ChangelogNext: s.p.changelogNext, ChangelogFrom: s.p.changelogFrom, Clean: s.clean, Baseline: s.p.baseline,
		})
	}
	return cycle
}

// check is the last look at the epochs before a cycle is ended. What changes after it waits for the cycle to be settled.
func check(shares []*share) error {
	for _, s := range shares {
		if now := s.p.is(); !now.commits() {
			return fmt.Errorf("partition %d is %s", s.p.id, now)
		}
	}
	return nil
}

// settle applies a committed cycle. The turns that wait for it go on meanwhile.
func (c *committer) settle(ctx context.Context, shares []*share, res *txn.Result) error {
	call(ctx, c.w.deps.Hooks.BeforeSettle)
	settlements := make([]statestore.Settlement, 0, len(shares))
	var waiting statestore.Waiting
	now := c.w.deps.Now()
	for _, s := range shares {
		if s.p.is().ended() { // Its next owner, be it us, finds the cycle in the changelog.
			s.revert()
			continue
		}
		s.confirm(res)
		settlements = append(settlements, statestore.Settlement{Batch: s.batch, Position: statestore.Position{
			ChangelogID: c.w.cfg.Changelog.ID, ChangelogNext: s.p.changelogNext, LeaderEpoch: c.w.changelogEpoch(s.p.id),
			Incarnation: c.w.cfg.Txn.Incarnation, CID: res.CID, At: now,
		}})
		waiting = append(waiting, s.batch.Waiting()...)
	}
	c.waker <- waiting
	if err := c.w.deps.Store.Commit(settlements); err != nil {
		return fmt.Errorf("apply cycle %d: %w", res.CID, err)
	}
	c.w.dirty.Store(true)
	for _, s := range shares {
		s.p.freed()
	}
	call(ctx, c.w.deps.Hooks.AfterSettle)
	return nil
}

func (s *share) confirm(res *txn.Result) {
	s.p.lastPosition = s.position
	s.p.changelogNext = res.ChangelogNext[s.p.id]
	s.p.baseline = res.Metadata[s.p.id]
	s.p.touched.Store(time.Now().UnixNano())
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.mu.tracker.Confirm()
	s.p.mu.committed = s.next
}

// fatal ends the worker: the ring or the store cannot go on. The partitions are gone at once, so that nothing begins any more.
func (c *committer) fatal(ctx context.Context, shares []*share, err error) error {
	for _, s := range shares {
		s.revert()
	}
	if ctx.Err() == nil {
		c.w.fail(ctx, err)
	}
	return errWorkerFailed
}

// lose lets go of partitions that another worker has committed.
func (c *committer) lose(ctx context.Context, ids []int32) {
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		if p := c.w.partition(id); p != nil {
			c.w.log.WarnContext(ctx, "partition has another owner", p.attr())
			p.end(stateGone, ErrLost)
		}
	}
	c.w.askRejoin()
}

// aborted does what the reason of an aborted cycle asks for. It returns the error that makes the cycle wait before it is tried
// again, or nil when there is no need.
func (c *committer) aborted(ctx context.Context, shares []*share, err error) error {
	switch {
	case errors.Is(err, txn.ErrStale), errors.Is(err, txn.ErrPartitionLost):
		signal(c.urgent)
		return nil
	case errors.Is(err, txn.ErrMemberUnknown):
		c.w.log.WarnContext(ctx, "the group has thrown us out; everything is lost", slog.Any("error", err))
		c.w.loseAll(ErrLost)
		c.w.askRejoin()
		signal(c.urgent) // The next cycle finds nothing that waits, and nothing that has waited too long.
		return nil
	case errors.Is(err, txn.ErrTopicGone):
		c.haltWriters(ctx, shares, err)
	case errors.Is(err, txn.ErrLogCut):
		haltCut(ctx, shares, err)
	case errors.Is(err, txn.ErrTooLarge):
		c.again.Reset() // Each refusal brings the next cycle closer to one that is taken.
		c.refused(ctx, shares, err)
	case errors.Is(err, txn.ErrConfig):
		c.w.trouble(ctx, sourceCycle, err)
	case errors.Is(err, txn.ErrRebalance), errors.Is(err, txn.ErrNotMember):
		if c.rebuffs++; c.rebuffs%rebuffsBeforeRejoin == 0 {
			c.w.forceRebalance()
		}
	case !c.again.Begun():
		c.w.log.WarnContext(ctx, "commit cycle was aborted; it is tried again until it succeeds", slog.Any("error", err))
	}
	return err
}

// rebuffsBeforeRejoin is how many cycles in a row, about a second apart by then, the group may refuse before we make it look at
// our membership.
const rebuffsBeforeRejoin = 8

// haltWriters halts the partitions that write to a topic which is gone. A broker that has just started may not know a topic yet,
// so it takes a few refusals.
func (c *committer) haltWriters(ctx context.Context, shares []*share, err error) {
	if c.rebuffs++; c.rebuffs < rebuffsBeforeRejoin {
		return
	}
	gone, _ := errors.AsType[*txn.TopicGoneError](err)
	for _, s := range shares {
		if gone == nil || gone.Topic == "" || s.writes(c.w, gone.Topic) {
			s.p.halt(ctx, err)
		}
	}
}

// haltCut halts the partitions whose changelog has lost its end, at once: another try would only move its end past what we know.
func haltCut(ctx context.Context, shares []*share, err error) {
	cut, _ := errors.AsType[*txn.LogCutError](err)
	for _, s := range shares {
		if cut != nil && slices.Contains(cut.Partitions, s.p.id) {
			s.p.halt(ctx, err)
		}
	}
}

func (s *share) writes(w *Worker, topic string) bool {
	if topic == w.cfg.Changelog.Name {
		return len(s.batch.Records) > 0
	}
	for _, o := range s.batch.Outputs {
		if o.Topic == topic {
			return true
		}
	}
	return topic == w.cfg.Turns.Name
}
