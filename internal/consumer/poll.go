package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/schemas"
)

// consume joins the group and polls until the worker has to end. It returns the client it was a member with, still in the group,
// and nil when it is to be drained. After a membership that did not last it waits before it joins again: a broker may refuse each.
func (w *Worker) consume(ctx, work context.Context) (*kgo.Client, error) {
	again := txn.Backoff{First: firstRejoin, Limit: longestRejoin, Spread: true}
	for {
		joined := time.Now()
		g, err := w.join(work)
		if err != nil {
			return nil, err
		}
		rejoin, err := w.consumeAs(ctx, work, g)
		if !rejoin {
			return g, err
		}
		w.loseAll(ErrLost)
		w.leave(work, g, false)
		w.dropGone(ctx)
		if time.Since(joined) > lastingMembership {
			again.Reset()
		}
		w.metrics.retry(work, retryGroup)
		if stop, err := w.pauseBeforeJoin(ctx, again.Step()); stop {
			return nil, err
		}
	}
}

// How long to wait before joining again, and what membership makes that begin anew.
const (
	firstRejoin       = 100 * time.Millisecond
	longestRejoin     = 10 * time.Second
	lastingMembership = 30 * time.Second
)

// pauseBeforeJoin waits. It reports whether the worker has to end instead, and why; nil when it is to be drained.
func (w *Worker) pauseBeforeJoin(ctx context.Context, d time.Duration) (bool, error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return true, nil
	case <-w.stopped:
		return true, ErrStopped
	case <-w.failed:
		return true, w.failure()
	}
}

// consumeAs polls as one member of the group. It reports whether another membership is needed.
func (w *Worker) consumeAs(ctx, work context.Context, g *kgo.Client) (again bool, err error) {
	polling, stopPolling := context.WithCancel(work)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.poll(polling, g)
	}()
	defer func() {
		stopPolling()
		if w.failure() == nil {
			<-done
		} else if !returns(func() { <-done }) {
			w.log.WarnContext(work, "the poll goroutine does not return; it is left behind")
		}
	}()
	select {
	case <-ctx.Done():
		return false, nil
	case <-w.stopped:
		return false, ErrStopped
	case <-w.failed:
		return false, w.failure()
	case <-w.rejoin:
		return true, nil
	}
}

// dropGone forgets the partitions of a membership that is over. What holds one may be a cycle whose outcome is not known while
// brokers are away; the wait for it ends with the worker.
func (w *Worker) dropGone(ctx context.Context) {
	for _, p := range w.all() {
		select {
		case <-p.detached:
			w.dropPartition(p)
		case <-ctx.Done():
			return
		case <-w.stopped:
			return
		case <-w.failed:
			return
		}
	}
}

// maxPoll bounds the records taken at once, so that one large fetch does not keep a new partition waiting.
const maxPoll = 4096

// poll is the poll goroutine. It only moves records into backlogs and never waits for a turn.
//
// It is also the one that starts a restored partition. A poll may return records that were fetched for an earlier assignment of
// it; but nothing is fetched for a paused partition, so what this goroutine takes after it has started the partition itself was
// fetched for this one.
func (w *Worker) poll(ctx context.Context, g *kgo.Client) {
	for ctx.Err() == nil {
		round, wake := context.WithCancel(ctx)
		w.mu.Lock()
		w.mu.wakePoll = wake
		ready := w.mu.ready
		w.mu.ready = nil
		w.mu.Unlock()
		w.seek(g, ready)
		for _, p := range ready {
			w.start(ctx, p)
		}
		for round.Err() == nil {
			w.beat.Store(time.Now().UnixNano())
			fetches := g.PollRecords(round, maxPoll)
			if fetches.IsClientClosed() {
				wake()
				return
			}
			w.route(ctx, fetches)
		}
		wake()
	}
}

// activate hands a restored partition to the poll goroutine.
func (w *Worker) activate(p *partition) {
	w.mu.Lock()
	w.mu.ready = append(w.mu.ready, p)
	wake := w.mu.wakePoll
	w.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// seek goes to where restored partitions begin, for all at once: each call ends every fetch that is under way.
func (w *Worker) seek(g *kgo.Client, ready []*partition) {
	at := make(map[int32]kgo.EpochOffset)
	for _, p := range ready {
		if start := p.assignment.Start; p.committed.offset != start {
			at[p.id] = kgo.EpochOffset{Epoch: -1, Offset: start}
		}
	}
	if len(at) > 0 {
		g.SetOffsets(map[string]map[int32]kgo.EpochOffset{w.cfg.Turns.Name: at})
	}
}

// start makes a restored partition run.
func (w *Worker) start(ctx context.Context, p *partition) {
	p.mu.Lock()
	counted := p.enterLocked()
	p.mu.Unlock()
	if !counted || !p.move(stateRestoring, stateRunning) {
		if counted {
			p.leave()
		}
		p.store.Detach()
		return
	}
	p.setPause(false)
	p.touched.Store(time.Now().UnixNano())
	if p.opened != nil {
		p.announce(ctx)
	}
	w.wg.Go(p.dispatch)
	w.log.InfoContext(ctx, "partition runs", p.attr(), slog.Int64("start", p.assignment.Start), slog.Bool("clean", p.assignment.Clean))
}

// route hands polled records to their partitions. Those of a partition that does not run are dropped: whoever runs it next fetches
// them again.
func (w *Worker) route(ctx context.Context, fetches kgo.Fetches) {
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		p := w.partition(f.Partition)
		if f.Err != nil {
			w.fetchFault(ctx, p, f.Topic, f.Err)
		}
		if p == nil || f.Topic != w.cfg.Turns.Name || p.is() != stateRunning {
			return
		}
		if len(f.Records) > 0 || f.Err == nil {
			w.calm(sourceFetch)
			p.fetchAgain.Reset()
			p.offer(f.Records, f.HighWatermark)
		}
	})
}

// fetchFault does what an error of a fetch asks for. What the client retries by itself is left to it.
func (w *Worker) fetchFault(ctx context.Context, p *partition, topic string, err error) {
	loss, lossy := errors.AsType[*kgo.ErrDataLoss](err)
	tooLarge, _ := errors.AsType[*kgo.ErrDecompressTooLarge](err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrClientClosed):
		return
	case isSession(err):
		return // The hook has it.
	case p == nil || topic != w.cfg.Turns.Name:
		w.log.WarnContext(ctx, "fetch failed", slog.String("topic", topic), slog.Any("error", err))
	case lossy:
		w.dataLoss(ctx, p, loss)
	case isRefusal(err):
		w.trouble(ctx, sourceFetch, err)
		if p.is() == stateAssigned { // The client gives up a partition whose committed offset it may not read.
			w.rejoinAfter(ctx, refusedRetry)
		} else {
			w.holdFetch(p)
		}
	case tooLarge != nil:
		w.wg.Go(func() { w.skipBatch(p.intake, p, tooLarge) })
	case errors.Is(err, kerr.OffsetOutOfRange):
		w.quiesce(ctx, p, fmt.Errorf("the offset to go on at is out of range: its records were deleted before they were handled, or the topic was cut; "+
			"to skip what is lost, reset the group's offset of this partition while no worker runs: %w", err))
	case isGone(err), errors.Is(err, kerr.UnknownTopicOrPartition):
		w.quiesce(ctx, p, fmt.Errorf("the turns topic was deleted or made again: %w", err))
	case errors.Is(err, kerr.UnknownServerError):
		w.log.WarnContext(ctx, "fetch failed; it is tried again after a while", p.attr(), slog.Any("error", err))
		w.holdFetch(p)
	case isBrokerError(err) && kerr.IsRetriable(err):
		w.log.DebugContext(ctx, "fetch failed and is retried", p.attr(), slog.Any("error", err))
	default:
		w.quiesce(ctx, p, fmt.Errorf("fetch: %w", err))
	}
}

// How long a partition is not fetched that a broker answered for with an error which the client does not wait after.
const (
	firstFetchRetry   = 250 * time.Millisecond
	longestFetchRetry = 10 * time.Second
)

// holdFetch fetches nothing for the partition for a while. Only the poll goroutine calls it.
func (w *Worker) holdFetch(p *partition) {
	if !p.heldOff.CompareAndSwap(false, true) {
		return
	}
	w.metrics.retry(p.ctx, retryFetch)
	p.setPause(true)
	d := p.fetchAgain.Step()
	w.wg.Go(func() {
		err := sleep(p.intake, d)
		p.heldOff.Store(false)
		if err == nil {
			p.syncPause()
		}
	})
}

func isSession(err error) bool {
	_, ok := errors.AsType[*kgo.ErrGroupSession](err)
	return ok
}

// dataLoss is raised when the log was cut below what was read. The client goes on at the cut; what was read beyond it has been
// handled, and other records may come to stand there.
func (w *Worker) dataLoss(ctx context.Context, p *partition, loss *kgo.ErrDataLoss) {
	p.mu.Lock()
	fetched := p.mu.fetched
	p.mu.Unlock()
	if loss.ResetTo >= fetched {
		w.log.WarnContext(ctx, "log was cut, but not below what was read", p.attr(), slog.Any("error", loss))
		return
	}
	w.quiesce(ctx, p, fmt.Errorf("the turns topic was cut below what was read: %w", loss))
}

// skipBatch makes a dead letter of a batch that would need too much memory or is damaged, and reads on after it. Nothing is fetched for the
// partition meanwhile, so the order stands.
func (w *Worker) skipBatch(ctx context.Context, p *partition, e *kgo.ErrDecompressTooLarge) {
	raw, err := w.turnsLog.batch(ctx, p.id, e.Offset)
	if err != nil {
		if ctx.Err() == nil {
			w.quiesce(ctx, p, errors.Join(e, err))
		}
		return
	}
	p.offerRefused(&kgo.Record{Topic: e.Topic, Partition: e.Partition, Offset: e.NextOffset - 1, Timestamp: w.deps.Now(), Value: raw},
		schemas.Errorf(schemas.CodeTooLarge, "the batch of offsets %d to %d cannot be decompressed within %d bytes; its value here is the batch as the broker has it",
			e.Offset, e.NextOffset-1, w.cfg.MaxDecompressBytes))
	if g := w.group(); g != nil && ctx.Err() == nil {
		g.SetOffsets(map[string]map[int32]kgo.EpochOffset{e.Topic: {e.Partition: {Epoch: e.Epoch, Offset: e.NextOffset}}})
	}
}

// refusedRetry is how long a partition waits that the brokers refuse.
const refusedRetry = 10 * time.Second

func (w *Worker) rejoinAfter(ctx context.Context, d time.Duration) {
	w.wg.Go(func() {
		if sleep(ctx, d) == nil {
			w.askRejoin()
		}
	})
}

// quiesce halts a partition whose log cannot be read any further: nothing more is fetched, what runs is drained first.
func (w *Worker) quiesce(ctx context.Context, p *partition, fault error) {
	if !p.setFault(fault) {
		return
	}
	w.log.ErrorContext(ctx, "partition is halted", p.attr(), slog.Any("error", fault))
	p.setPause(true)
	w.wg.Go(func() { p.drain(p.ctx, w.cfg.DrainBudget, stateHalted) })
}
