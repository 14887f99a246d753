package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"
)

// Ring commits cycles on its slots in turn. A broker holds a producer back that begins again before the markers of its
// last transaction are written; the next slot has no such past. One transaction is open at a time.
//
// Commit and Close belong to one goroutine; SetCID may be called from any.
type Ring struct {
	cfg     Config
	slots   []*slot
	metrics *metrics
	cid     atomic.Uint64

	// What follows is only used by the goroutine that calls Commit.

	next       int
	parts      partitions
	announcing bool
	limits     batchLimits
	guard      guard
	failed     error
}

// Open initialises every slot, which ends whatever a predecessor with the same ids left open. It returns when all are
// done or ctx ends.
func Open(ctx context.Context, cfg Config) (*Ring, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open the transaction ring: %w", err)
	}
	instruments, err := newMetrics(cfg.Meter)
	if err != nil {
		return nil, fmt.Errorf("open the transaction ring: %w", err)
	}
	r := &Ring{cfg: cfg, metrics: instruments, announcing: cfg.TransactionVersion >= 2 && !cfg.silent}
	r.limits = batchLimits{most: r.cfg.batchBytes, now: time.Now}
	group, ctx := errgroup.WithContext(ctx)
	for i := range cfg.Slots {
		s := &slot{cfg: &r.cfg, number: i, txID: cfg.txID(i)}
		r.slots = append(r.slots, s)
		group.Go(func() error { return r.open(ctx, s) })
	}
	if err := group.Wait(); err != nil {
		r.Close()
		return nil, fmt.Errorf("open the transaction ring: %w", err)
	}
	return r, nil
}

// open opens a slot at the start, again if that fails for a reason that may pass: the client does not ask again after every error that
// a broker in trouble answers with. After eight such answers, about 15 s, it gives up; while no broker answers at all it waits for them,
// as a worker does that runs.
func (r *Ring) open(ctx context.Context, s *slot) error {
	const tries = 8
	again := Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second, Spread: true}
	for try := 0; ; {
		err := s.open(ctx)
		if err == nil || errors.Is(err, ErrConfig) {
			return err
		}
		if _, answered := errors.AsType[*kerr.Error](err); answered {
			try++
		}
		if try == tries {
			return err
		}
		if again.Wait(ctx) != nil {
			return err
		}
		r.metrics.retry(ctx, retryOpen)
	}
}

// Close closes every slot. An open transaction is left to the next process with the same ids, or to its timeout.
func (r *Ring) Close() {
	if r.failed == nil {
		r.failed = ErrClosed
	}
	for _, s := range r.slots {
		s.discard()
	}
}

// SetCID raises the number of the last cycle to at least minimum: the largest that any partition's metadata has.
func (r *Ring) SetCID(minimum uint64) {
	for {
		now := r.cid.Load()
		if now >= minimum || r.cid.CompareAndSwap(now, minimum) {
			return
		}
	}
}

// Timeout is after how long the coordinator aborts a transaction of ours, and of any worker with the same settings.
func (r *Ring) Timeout() time.Duration { return r.cfg.Timeout }

// LeaderEpoch is the newest leader epoch of a partition that a producer has heard of, -1 when none has. It belongs to the
// goroutine that calls Commit.
func (r *Ring) LeaderEpoch(topic string, partition int32) int32 {
	newest := int32(-1)
	for _, s := range r.slots {
		if s.client == nil {
			continue
		}
		if _, epoch, err := s.client.PartitionLeader(topic, partition); err == nil {
			newest = max(newest, epoch)
		}
	}
	return newest
}

// Commit runs one cycle to its certain end. An error means that the Ring can't go on; anything else is in the Result.
func (r *Ring) Commit(ctx context.Context, c *Cycle) (Result, error) {
	if r.failed != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrClosed, r.failed)
	}
	if err := c.validate(); err != nil {
		return Result{}, fmt.Errorf("commit: %w", err)
	}
	res := Result{CID: r.cid.Add(1)}
	if c.Group.MemberID == "" || c.Group.Generation <= 0 {
		res.Err = ErrNotMember
		return res, nil
	}
	a := &attempt{ring: r, slot: r.slots[r.next], cycle: c, cid: res.CID, begun: time.Now()}
	r.next = (r.next + 1) % len(r.slots)
	fatal := r.settle(ctx, a, &res)
	res.Elapsed = time.Since(a.begun)
	r.metrics.cycle(ctx, &res)
	if fatal != nil {
		r.failed = fatal
		return res, fmt.Errorf("commit cycle %d: %w", res.CID, fatal)
	}
	return res, nil
}

// settle runs the attempt and does what its verdict asks for. It returns an error if the Ring can't go on.
func (r *Ring) settle(ctx context.Context, a *attempt, res *Result) error {
	v, err := a.run(ctx)
	res.Err = err
	switch v {
	case commitCertain:
		res.committed(a)
		return nil
	case abortClean:
		if err := r.abort(ctx, a); err != nil {
			res.Err = errors.Join(res.Err, err)
		}
	case abortReplace:
		r.replace(ctx, a.slot, err)
	case commitUnknown:
		res.Resolved = true
		r.metrics.unknown.Add(ctx, 1)
		if err := r.decide(ctx, a, res); err != nil {
			return err
		}
	}
	return r.suspect(a, res, err)
}

// abort ends a transaction that must not be committed, and replaces the slot if that is not possible.
func (r *Ring) abort(ctx context.Context, a *attempt) error {
	r.cfg.Hooks.before(ctx, StepAbort)
	defer r.cfg.Hooks.after(ctx, StepAbort)
	sound, err := a.abort(ctx)
	if !sound {
		r.replace(ctx, a.slot, err)
	}
	return err
}

// replace makes the slot anew, which ends its transaction. If that fails the slot is made anew when its turn comes.
func (r *Ring) replace(ctx context.Context, s *slot, why error) {
	if s.client == nil {
		return // it failed to be made when its turn came
	}
	r.cfg.Hooks.before(ctx, StepReplace)
	defer r.cfg.Hooks.after(ctx, StepReplace)
	r.discard(ctx, s, why)
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.flushLimit(), errFlushDeadline)
	defer cancel()
	if err := s.open(ctx); err != nil {
		r.cfg.Logger.WarnContext(ctx, "transactional producer not replaced yet",
			slog.String("transactional_id", s.txID), slog.Any("error", err))
	}
}

func (r *Ring) discard(ctx context.Context, s *slot, why error) {
	s.discard()
	r.metrics.replaced.Add(ctx, 1)
	r.cfg.Logger.InfoContext(ctx, "replacing a transactional producer",
		slog.String("transactional_id", s.txID), slog.Any("error", why))
}

// decide finds out what became of a cycle of unknown outcome.
func (r *Ring) decide(ctx context.Context, a *attempt, res *Result) error {
	r.discard(ctx, a.slot, res.Err)
	found, err := a.resolve(ctx)
	if err != nil {
		return err
	}
	res.Lost = found.lost
	if found.second {
		return ErrSecondProcess
	}
	if len(found.torn) > 0 {
		r.cfg.Logger.ErrorContext(ctx, "a commit cycle is visible in some partitions only",
			slog.String("transactional_id", a.slot.txID), slog.Uint64("cid", a.cid), slog.Any("partitions", found.torn))
	}
	switch {
	case found.committed:
		res.committed(a)
	case len(found.lost) > 0:
		res.Err = fmt.Errorf("%w: %w", ErrPartitionLost, res.Err)
	}
	return nil
}

// suspect looks at how a cycle went wrong for signs of a second process. A transaction that outlived its timeout was
// fenced by the coordinator, and a group that does not know us has other troubles.
func (r *Ring) suspect(a *attempt, res *Result, err error) error {
	switch {
	case errors.Is(res.Err, ErrFencedInstance):
		return res.Err
	case errors.Is(res.Err, ErrMemberUnknown):
		r.guard.forget()
	case (isFence(err) || isFence(res.Err)) && time.Since(a.begun) < r.cfg.Timeout:
		if r.guard.fence(time.Now()) {
			return fmt.Errorf("%w: %w", ErrDuplicateID, err)
		}
	}
	return nil
}

// CycleBytes is how large a cycle should be at most: small while a topic's batches are limited, since each batch of a partition is
// then sent by itself. It is 0 when there is no reason for less than usual. It belongs to the goroutine that calls Commit.
func (r *Ring) CycleBytes() int { return limitedBatches * r.limits.smallest() }

// limitedBatches is how many batches of one partition a cycle may have one after another, each a round trip.
const limitedBatches = 64

// owns reports whether a transactional id is that of one of our slots.
func (r *Ring) owns(txID string) bool {
	return slices.ContainsFunc(r.slots, func(s *slot) bool { return s.txID == txID })
}

func (res *Result) committed(a *attempt) {
	res.Outcome, res.Err = Committed, nil
	res.Metadata, res.ChangelogNext = a.metadata, a.changelogNext
}

// validate refuses what is a mistake of the caller.
func (c *Cycle) validate() error {
	if len(c.Records) == 0 {
		return errors.New("a cycle without records is never ended by the client")
	}
	if len(c.Offsets) == 0 {
		return errors.New("a cycle without offsets has no fence")
	}
	for i := range c.Offsets {
		if c.Offsets[i].Topic != c.Offsets[0].Topic {
			return errors.New("the offsets of a cycle are of several topics")
		}
	}
	return nil
}
