package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// lane is the queue of one session. It owns a goroutine only while it has work: push starts it, empty ends it. The window bounds
// its length. Its fields belong to the partition's lock.
type lane struct {
	queue []task
	// running says that it has a goroutine, held that it must not begin anything.
	running, held bool
}

// task is one turn, of a record or of the state.
type task struct {
	rec *Record
	// run is nil when the record is to be handled.
	run func(ctx context.Context) error
	// again tasks have had a place before, and have none now.
	again bool
	// bytes is what the record holds in memory.
	bytes int64
}

// push queues a task behind those of its session. The task holds a place of the window and one of the worker. It reports false
// when intake has stopped.
func (p *partition) push(key string, t task) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.mu.lanes[key]
	if l == nil {
		if !p.enterLocked() {
			return false
		}
		l = &lane{running: true}
		p.mu.lanes[key] = l
		p.held.Add(t.bytes)
		p.w.lanes.Go(func() { p.runLane(key, l, t) })
		return true
	}
	if p.intake.Err() != nil {
		return false
	}
	l.queue = append(l.queue, t)
	p.mu.queued++
	p.held.Add(t.bytes)
	return true
}

// dropQueueLocked drops what has not begun: whoever has the partition next gets it again.
func (p *partition) dropQueueLocked(l *lane) {
	for _, t := range l.queue {
		if !t.again {
			p.mu.queued--
			p.held.Add(-t.bytes)
			p.w.release(p)
		}
	}
	l.queue = nil
}

// holdLane keeps a lane from beginning anything. What it runs goes on.
func (p *partition) holdLane(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.mu.lanes[key]
	if l == nil {
		l = &lane{}
		p.mu.lanes[key] = l
	}
	l.held = true
}

// resumeLane lets a held lane go on, with some tasks ahead of what waits in it.
func (p *partition) resumeLane(key string, first []Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.mu.lanes[key]
	queue := make([]task, 0, len(first)+len(l.queue))
	for _, t := range first {
		queue = append(queue, task{rec: t.Record, run: t.Run, again: true})
	}
	l.queue = append(queue, l.queue...)
	l.held = false
	if l.running {
		return
	}
	if len(l.queue) == 0 || !p.enterLocked() {
		p.dropQueueLocked(l)
		delete(p.mu.lanes, key)
		return
	}
	l.running = true
	t := p.popLocked(l)
	p.w.lanes.Go(func() { p.runLane(key, l, t) })
}

func (p *partition) runLane(key string, l *lane, t task) {
	defer p.leave()
	for ok := true; ok; t, ok = p.nextTask(key, l) {
		p.runTask(t)
	}
}

// nextTask takes the lane's next task, or ends its goroutine. When intake has stopped what has not begun is dropped.
func (p *partition) nextTask(key string, l *lane) (task, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.intake.Err() != nil {
		p.dropQueueLocked(l)
	}
	if l.held || len(l.queue) == 0 {
		l.running = false
		if !l.held {
			delete(p.mu.lanes, key)
		}
		return task{}, false
	}
	return p.popLocked(l), true
}

func (p *partition) popLocked(l *lane) task {
	t := l.queue[0]
	l.queue[0] = task{}
	l.queue = l.queue[1:]
	if !t.again {
		p.mu.queued--
	}
	return t
}

// runTask runs one turn to its end and gives its places back.
func (p *partition) runTask(t task) {
	if !t.again {
		defer p.done(t)
	}
	p.settleTask(t.rec, p.guarded(func() error {
		if t.run != nil {
			return t.run(p.ctx)
		}
		return p.handler.Handle(p.ctx, t.rec)
	}))
}

// done gives back what a turn has held.
func (p *partition) done(t task) {
	p.w.release(p)
	p.held.Add(-t.bytes)
	signal(p.space)
}

// guarded makes a panic the end of the worker: turns recover their own, so this one comes from below them, and what it left
// behind is not to be trusted.
func (p *partition) guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: panic: %v", ErrSuspended, v)
			p.w.fail(p.ctx, fmt.Errorf("partition %d: panic: %v\n%s", p.id, v, debug.Stack()))
		}
	}()
	return f()
}

// settleTask does what the outcome of a turn asks for.
func (p *partition) settleTask(rec *Record, err error) {
	if err == nil || errors.Is(err, ErrRedone) {
		return
	}
	if rec != nil {
		if reason, ok := errors.AsType[*schemas.Error](err); ok && reason.Code.DeadLetter() && reason.Class == schemas.ClassTerminal {
			p.deadLetter(rec, reason)
			return
		}
	}
	if p.is() != stateRunning { // Draining, lost or stopped: who has the partition next resumes the turn.
		if !errors.Is(err, ErrSuspended) && !errors.Is(err, statestore.ErrGone) {
			p.w.log.WarnContext(p.ctx, "turn ended with its partition", p.attr(), slog.Any("error", err))
		}
		return
	}
	offset := int64(-1)
	if rec != nil {
		offset = rec.Offset
	}
	p.halt(p.ctx, fmt.Errorf("handle the record at offset %d: %w", offset, err))
}
