package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/spare"
)

// Worker consumes its share of the turns topic until it is told to stop. Run may be called once; the other methods may be called
// from any goroutine.
type Worker struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	outputs map[string]int32

	ring *txn.Ring
	// changelog and turnsLog read partitions by hand, with one client.
	changelog, turnsLog *logReader
	committer           *committer
	pulse               atomic.Pointer[pulse]
	client              atomic.Pointer[kgo.Client]

	// slots has a place for each turn in flight, restores one for each fetch of the changelog that is under way.
	slots, restores chan struct{}
	// failed is closed when the worker cannot go on, stopped by StopNow; rejoin asks for a new membership.
	failed, stopped, rejoin chan struct{}
	stopOnce                sync.Once
	// dirty is set when something was committed, or read from the changelog, since the state store was last synced.
	dirty atomic.Bool
	// share is each partition's part of MaxBufferedBytes.
	share atomic.Int64
	// beat is when the poll goroutine last went round, as Unix nanoseconds.
	beat atomic.Int64

	wg sync.WaitGroup
	// lanes run the turns. A turn needs a deep stack, and most last for milliseconds.
	lanes spare.Goroutines

	mu struct {
		sync.Mutex
		partitions map[int32]*partition
		// reading has, of each partition, what is closed when its last restore has ended.
		reading map[int32]chan struct{}
		epoch   uint64
		cycle   *openCycle
		// ready are restored partitions that the poll goroutine has to start.
		ready    []*partition
		wakePoll context.CancelFunc
		joined   bool
		// outside is set from when a session of the group ends until the next assignment.
		outside  bool
		closing  bool
		failure  error
		troubles map[source]*trouble
	}
}

// keepLanes is how many goroutines wait for a lane at most.
const keepLanes = 256

// New makes a worker; it opens nothing.
func New(cfg Config, deps Deps) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.validate(), deps.validate()); err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	w := &Worker{
		cfg: cfg, deps: deps, log: deps.Logger, outputs: cfg.outputs(),
		slots: make(chan struct{}, cfg.MaxInFlight), restores: make(chan struct{}, cfg.RestoreParallel),
		lanes:  spare.Goroutines{Keep: keepLanes},
		failed: make(chan struct{}), stopped: make(chan struct{}), rejoin: make(chan struct{}, 1),
	}
	w.mu.partitions, w.mu.reading = make(map[int32]*partition), make(map[int32]chan struct{})
	w.mu.troubles = make(map[source]*trouble)
	w.committer = newCommitter(w)
	var err error
	if w.metrics, err = newMetrics(deps.Meter, w); err != nil {
		return nil, fmt.Errorf("make the consumer's metrics: %w", err)
	}
	return w, nil
}

// Run consumes until ctx ends, and then drains: it returns nil when every partition was drained and its last commit stands. It
// returns an error when the worker cannot go on, or was stopped before it was drained.
//
// The order in which things are stopped is the reverse of what depends on what: polling, turns, the last cycles, the committer,
// the group, the producers.
func (w *Worker) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, w.metrics.close()) }()
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWork(ErrStopped)
	if err := w.openUntilStopped(ctx); err != nil {
		if ctx.Err() != nil && !errors.Is(err, ErrStopped) {
			return nil // Told to stop before anything began: there is nothing to drain.
		}
		return err
	}
	committing, stopCommitting := context.WithCancel(work)
	defer stopCommitting()
	var background sync.WaitGroup
	background.Go(func() { w.committer.run(committing) })
	background.Go(w.committer.waker.run)
	background.Go(func() { w.watch(committing) })
	background.Go(func() { w.expire(committing) })
	background.Go(func() { w.watchStore(committing) })
	background.Go(func() { w.reportProgress(committing) })
	group, err := w.consume(ctx, work)
	if err == nil {
		err = w.drainAll(work)
	}
	w.loseAll(ErrStopped)
	w.awaitDetached(closeGrace)
	stopCommitting()
	done := w.awaitBackground(ctx, &background)
	if group != nil {
		w.leave(ctx, group, w.cfg.LeaveOnStop || errors.Is(err, ErrNoProgress))
	}
	stopWork(ErrStopped)
	w.awaitLanes(ctx)
	if done {
		w.closeClients()
	} else {
		go func() { // Who was left behind has them in use.
			background.Wait()
			w.closeClients()
		}()
	}
	return err
}

// closeGrace is how long the end waits for what should be over at once.
const closeGrace = 5 * time.Second

// StopNow ends the worker without draining: what runs is cancelled, what is not committed is dropped.
func (w *Worker) StopNow() { w.stopOnce.Do(func() { close(w.stopped) }) }

func (w *Worker) openUntilStopped(ctx context.Context) error {
	opening, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watch := make(chan struct{})
	go func() {
		defer close(watch)
		select {
		case <-w.stopped:
			stop(ErrStopped)
		case <-opening.Done():
		}
	}()
	err := w.openClients(opening)
	stop(nil)
	<-watch
	return err
}

// openClients opens the ring before the group is joined: it ends what a predecessor with the same ids left open, on which the
// group would wait a second at a time.
func (w *Worker) openClients(ctx context.Context) error {
	reader, err := w.newClient(kgo.MaxDecompressBatchBytes(w.cfg.MaxDecompressBytes))
	if err != nil {
		return fmt.Errorf("make the changelog client: %w", err)
	}
	again := func(ctx context.Context) { w.metrics.retry(ctx, retryRestore) }
	w.changelog = newLogReader(reader, w.cfg.Changelog, w.cfg.RestoreFetchBytes, again)
	w.turnsLog = newLogReader(reader, w.cfg.Turns, w.cfg.RestoreFetchBytes, again)
	cfg := w.cfg.Txn
	cfg.Group, cfg.Changelog, cfg.NewClient, cfg.Logger, cfg.Meter = w.cfg.Group, w.cfg.Changelog.Name, w.newClient, w.log, w.deps.Meter
	cfg.Hooks, cfg.BatchBytes = w.deps.Hooks.Txn, w.cfg.batchBytes()
	if w.ring, err = txn.Open(ctx, cfg); err != nil {
		reader.Close()
		return fmt.Errorf("open the consumer: %w", err)
	}
	if err := w.changelog.refresh(ctx); err != nil {
		w.log.WarnContext(ctx, "leaders of the changelog are not known yet", slog.Any("error", err))
	}
	return nil
}

func (w *Worker) closeClients() {
	w.ring.Close()
	w.changelog.cl.Close()
}

// awaitLanes waits for what was cancelled. A tool that ignores its context is left behind: it can no longer commit anything.
func (w *Worker) awaitLanes(ctx context.Context) {
	done := returns(func() {
		w.wg.Wait()
		w.lanes.Close()
		w.lanes.Wait()
	})
	if !done {
		w.log.WarnContext(ctx, "turns that were cancelled do not return; they are left behind")
	}
}

// awaitBackground waits for the committer and the watchdog. Of a worker that has failed they may never return, if it is that which
// is wrong with it (a disk that takes no more writes); then they are left behind, so that it still leaves its group and ends.
func (w *Worker) awaitBackground(ctx context.Context, background *sync.WaitGroup) bool {
	if w.failure() == nil {
		background.Wait()
		return true
	}
	done := returns(background.Wait)
	if !done {
		w.log.WarnContext(ctx, "the committer does not return; it is left behind")
	}
	return done
}

// watchStore ends the worker when its state store cannot go on. It touches the store itself by nothing that could hang.
func (w *Worker) watchStore(ctx context.Context) {
	select {
	case <-w.deps.Store.Failed():
		w.fail(ctx, w.deps.Store.Err())
	case <-ctx.Done():
	}
}

// returns reports whether wait returned within closeGrace. If not it is left behind, by a worker that ends.
func returns(wait func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// fail ends the worker with an error. The first counts.
func (w *Worker) fail(ctx context.Context, err error) {
	w.mu.Lock()
	first := w.mu.failure == nil
	if first {
		w.mu.failure = err
	}
	w.mu.Unlock()
	if !first {
		return
	}
	w.log.ErrorContext(ctx, "worker cannot go on", slog.Any("error", err))
	close(w.failed)
	cause := ErrStopped
	if errors.Is(err, txn.ErrSecondProcess) || errors.Is(err, txn.ErrFencedInstance) || errors.Is(err, txn.ErrDuplicateID) {
		cause = ErrLost
	}
	w.loseAll(cause)
}

func (w *Worker) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.failure
}

func (w *Worker) group() *kgo.Client { return w.client.Load() }

func (w *Worker) partition(id int32) *partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.partitions[id]
}

// all lists the partitions in order.
func (w *Worker) all() []*partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*partition, 0, len(w.mu.partitions))
	for _, p := range w.mu.partitions {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *partition) int { return int(a.id - b.id) })
	return out
}

// loseAll lets go of everything at once.
func (w *Worker) loseAll(cause error) {
	for _, p := range w.all() {
		p.end(stateGone, cause)
	}
}

func (w *Worker) awaitDetached(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for _, p := range w.all() {
		select {
		case <-p.detached:
		case <-t.C:
			return
		}
	}
}

// release gives back the places of one turn.
func (w *Worker) release(p *partition) {
	<-p.window
	<-w.slots
}

func (w *Worker) shareOutLocked() {
	w.share.Store(w.cfg.MaxBufferedBytes / int64(max(1, len(w.mu.partitions))))
}

// dropPartition forgets an assignment that is over.
func (w *Worker) dropPartition(p *partition) {
	<-p.detached
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.partitions[p.id] == p {
		delete(w.mu.partitions, p.id)
		w.shareOutLocked()
	}
}

// beginCycle opens a cycle that holds every partition whose effects may be committed. Who changes the state of one from here on
// waits for the cycle.
func (w *Worker) beginCycle() *openCycle {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &openCycle{holds: make(map[*partition]bool, len(w.mu.partitions)), done: make(chan struct{})}
	for _, p := range w.mu.partitions {
		if p.is().commits() {
			c.holds[p] = true
		}
	}
	w.mu.cycle = c
	return c
}

// committing lists what the cycle holds, in order.
func (w *Worker) committing(c *openCycle) []*partition {
	out := make([]*partition, 0, len(c.holds))
	for p := range c.holds {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *partition) int { return int(a.id - b.id) })
	return out
}

// trimCycle lets go of the partitions that have no share in the cycle.
func (w *Worker) trimCycle(c *openCycle, shares []*share) {
	holds := make(map[*partition]bool, len(shares))
	for _, s := range shares {
		holds[s.p] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.holds = holds
}

func (w *Worker) endCycle(c *openCycle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.cycle = nil
	close(c.done)
}

// awaitCycle returns when no cycle holds the partition. Its state must be such that no later cycle takes it.
func (w *Worker) awaitCycle(p *partition) {
	w.mu.Lock()
	c := w.mu.cycle
	if c == nil || !c.holds[p] {
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	<-c.done
}
