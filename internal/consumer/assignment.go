package consumer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
)

// partition is one assignment of one partition: everything that must not outlive it. A new assignment is a new partition, with
// another epoch.
type partition struct {
	w     *Worker
	id    int32
	epoch uint64
	// member is what the group knew us by when it gave us the partition; set before anybody sees it.
	member string
	state  atomic.Int32

	// ctx is the lanes' context; it is cancelled with the cause why they must stop. intake ends when nothing is to begin any
	// more, before ctx or with it.
	ctx        context.Context //nolint:containedctx // Lanes live as long as the assignment, not as long as a call.
	cancel     context.CancelCauseFunc
	intake     context.Context //nolint:containedctx // As above.
	stopIntake context.CancelFunc

	// prior is the assignment of the same partition before this one, if it was not told to be over; nil as a rule.
	prior *partition

	// ended is closed when the state is gone or halted, detached when its effects are dropped and no cycle holds it, restored
	// when nothing reads the changelog for it any more.
	ended, detached, restored chan struct{}
	// cause is why it has ended; set before ended is closed.
	cause error
	// drains is set by the first that drains the partition.
	drains atomic.Bool

	// What follows is set before the state is running, and not changed after.

	assignment *Assignment
	handler    PartitionHandler
	store      *statestore.Partition
	committed  committed
	// opened is closed when the first commit of this assignment stands; nil when none is needed.
	opened chan struct{}
	// changelogFrom is the log start from which on the changelog has all of the state, see txn.Metadata.
	changelogFrom int64

	// suspects is how many of the next records the last owner may have run when it died. It is only used by the dispatcher once the
	// state is running.
	suspects int

	// What follows is only used by the committer once the state is running.

	baseline      string
	changelogNext int64
	lastPosition  string

	// final is set when nothing can add an effect any more, unclean when the partition was let go of with something undone.
	final, unclean atomic.Bool

	// window has a place for each turn that may be delivered and not done.
	window chan struct{}
	// arrived wakes the dispatcher when there are records, space when there may be room for another turn; room wakes turns.
	arrived, space chan struct{}
	room           room
	// held is what the records of turns that are delivered and not done hold in memory, in bytes.
	held atomic.Int64

	restore restoreProgress
	// seen belongs to the watchdog.
	seen seen
	// touched is when the partition last had a share in a cycle that was committed, as Unix nanoseconds.
	touched atomic.Int64

	mu struct {
		sync.Mutex
		tracker *tracker
		// active counts the goroutines that can add effects: the dispatcher and the lanes that have work.
		active int
		// idle is closed when intake has stopped and active is 0.
		idle      chan struct{}
		lanes     map[string]*lane
		queued    int
		backlog   []arrival
		bytes     int64
		taken     uint64 // records that the dispatcher took from the backlog
		fault     error
		waiting   string
		highWater int64
		fetched   int64
		committed int64
	}

	// paused says that nothing is fetched; pausing is held while that changes. heldOff keeps it so for a while; fetchAgain says for how
	// long, and is only used by the poll goroutine.
	paused, heldOff atomic.Bool
	fetchAgain      txn.Backoff
	pausing         sync.Mutex
}

// committed is what the group had for a partition when it was assigned.
type committed struct {
	// offset is -1 when there is none.
	offset   int64
	metadata string
}

func (w *Worker) newPartition(work context.Context, id int32, epoch uint64) *partition {
	p := &partition{
		w: w, id: id, epoch: epoch,
		ended: make(chan struct{}), detached: make(chan struct{}), restored: make(chan struct{}),
		window: make(chan struct{}, w.cfg.Window), arrived: make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancelCause(work)
	p.intake, p.stopIntake = context.WithCancel(p.ctx)
	p.fetchAgain = txn.Backoff{First: firstFetchRetry, Limit: longestFetchRetry, Spread: true}
	p.mu.idle = make(chan struct{})
	p.mu.lanes = make(map[string]*lane)
	p.mu.highWater, p.mu.fetched, p.mu.committed = -1, -1, -1
	return p
}

func (p *partition) is() state { return state(p.state.Load()) }

// move changes the state if it is still from.
func (p *partition) move(from, to state) bool {
	return p.state.CompareAndSwap(int32(from), int32(to))
}

// end makes the partition gone or halted, once: its lanes are cancelled with the cause at once, its effects are dropped when no
// cycle holds them any more. It does not wait; detached tells.
func (p *partition) end(to state, cause error) {
	was := p.is()
	for !was.ended() && !p.move(was, to) {
		was = p.is()
	}
	if was.ended() {
		p.move(stateHalted, to)
		return
	}
	p.cause = cause
	close(p.ended)
	p.cancel(cause)
	p.closeIntake()
	p.w.wg.Go(func() {
		defer close(p.detached)
		p.w.awaitCycle(p)
		if was.commits() {
			p.store.Detach()
		}
	})
}

// halt ends the partition because of a fault that a person has to look at.
func (p *partition) halt(ctx context.Context, fault error) {
	if p.is().ended() || !p.setFault(fault) {
		return
	}
	p.w.log.ErrorContext(ctx, "partition is halted", p.attr(), slog.Any("error", fault))
	p.setPause(true)
	p.end(stateHalted, ErrHalted)
}

// setFault notes why the partition halts; the first counts.
func (p *partition) setFault(fault error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.fault != nil {
		return false
	}
	p.mu.fault = fault
	return true
}

func (p *partition) attr() slog.Attr {
	return slog.Group("partition", slog.String("topic", p.w.cfg.Turns.Name), slog.Int("id", int(p.id)), slog.Uint64("epoch", p.epoch))
}

// closeIntake stops the dispatcher and drops what has not begun.
func (p *partition) closeIntake() {
	p.stopIntake()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.backlog, p.mu.bytes = nil, 0
	p.idleLocked()
}

// idleLocked tells who waits for the partition to be idle, when it is for good.
func (p *partition) idleLocked() {
	if p.mu.active > 0 || p.intake.Err() == nil {
		return
	}
	select {
	case <-p.mu.idle:
	default:
		close(p.mu.idle)
	}
}

// enterLocked counts a goroutine that can add effects; false when intake has stopped.
func (p *partition) enterLocked() bool {
	if p.intake.Err() != nil {
		return false
	}
	p.mu.active++
	return true
}

func (p *partition) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.active--
	p.idleLocked()
}

// permit answers Assignment.Permit.
func (p *partition) permit(ctx context.Context) error {
	for {
		switch p.is() {
		case stateAssigned, stateRestoring, stateDraining:
			return ErrDraining
		case stateGone:
			<-p.ended
			return p.cause
		case stateHalted:
			return ErrHalted
		case stateRunning:
		}
		if p.foreign() {
			p.w.loseForeign(ctx) // Else its turns would end by themselves in a partition that runs, which is a fault.
			continue
		}
		if p.choked() {
			if err := p.awaitRoom(ctx); err != nil {
				return err
			}
			continue
		}
		if p.w.pulse.Load().fresh(p.w.cfg.SessionTimeout / 2) {
			return nil
		}
		if err := sleep(ctx, pulseRetry); err != nil {
			return err
		}
	}
}

// pulseRetry is how often a doubtful session is looked at.
const pulseRetry = 20 * time.Millisecond

// sleep waits for d, or returns the cause why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// signal wakes who waits on a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
