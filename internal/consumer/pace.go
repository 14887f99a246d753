package consumer

import (
	"runtime"
	"sync"
)

// pacer bounds how many turns compute at once. A burst of turns that all can go on would fill the scheduler's run queues, and
// each hop of the commit cycle, which everybody waits for, would stand in line behind hundreds of them. A turn holds a place
// while it computes and gives it up while it waits for a model, a tool or a commit, so waiting turns cost nothing and
// any number of them may be in flight.
type pacer struct {
	mu struct {
		sync.Mutex
		free int
		// again are turns that have begun and go on; they come before those that begin, so that turns end one after another
		// rather than all at the end.
		again, begin []chan struct{}
	}
}

// newPacer allows as many as can run in parallel.
func newPacer() *pacer {
	p := &pacer{}
	p.mu.free = runtime.GOMAXPROCS(0)
	return p
}

// enter waits for a place.
func (p *pacer) enter(queue *[]chan struct{}) {
	p.mu.Lock()
	if p.mu.free > 0 {
		p.mu.free--
		p.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	*queue = append(*queue, turn)
	p.mu.Unlock()
	<-turn // A place is never held over a wait, so this one comes.
}

// leave hands the place on.
func (p *pacer) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&p.mu.again, &p.mu.begin} {
		if q := *queue; len(q) > 0 {
			close(q[0])
			q[0] = nil
			*queue = q[1:]
			return
		}
	}
	p.mu.free++
}

// work runs f, which computes, with a place.
func (p *pacer) work(f func()) {
	if p != nil {
		p.enter(&p.mu.begin)
		defer p.leave()
	}
	f()
}

// wait runs f, which waits, without the place that its caller holds.
func (p *pacer) wait(f func()) {
	if p != nil {
		p.leave()
		defer p.enter(&p.mu.again)
	}
	f()
}
