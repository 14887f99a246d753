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
}

// task is one turn, of a record or of the state.
type task struct {
	rec *Record
	run func(ctx context.Context) error
}

// push queues a task behind those of its session. The task holds a place of the window and one of the worker. It reports false
// when intake has stopped.
func (p *partition) push(key string, t task) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, busy := p.mu.lanes[key]
	if !busy {
		if !p.enterLocked() {
			return false
		}
		l = &lane{}
		p.mu.lanes[key] = l
		p.w.lanes.Go(func() { p.runLane(key, l, t) })
		return true
	}
	if p.intake.Err() != nil {
		return false
	}
	l.queue = append(l.queue, t)
	p.mu.queued++
	return true
}

func (p *partition) runLane(key string, l *lane, t task) {
	defer p.leave()
	for ok := true; ok; t, ok = p.nextTask(key, l) {
		p.runTask(t)
	}
}

// nextTask takes the lane's next task, or ends the lane. When intake has stopped what has not begun is dropped.
func (p *partition) nextTask(key string, l *lane) (task, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.intake.Err() != nil {
		p.mu.queued -= len(l.queue)
		for range l.queue {
			p.w.release(p)
		}
		l.queue = nil
	}
	if len(l.queue) == 0 {
		delete(p.mu.lanes, key)
		return task{}, false
	}
	t := l.queue[0]
	l.queue[0] = task{}
	l.queue = l.queue[1:]
	p.mu.queued--
	return t, true
}

// runTask runs one turn to its end and gives its places back.
func (p *partition) runTask(t task) {
	defer p.w.release(p)
	p.settleTask(t.rec, p.guarded(func() error {
		if t.rec != nil {
			return p.handler.Handle(p.ctx, t.rec)
		}
		return t.run(p.ctx)
	}))
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
	if err == nil {
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
