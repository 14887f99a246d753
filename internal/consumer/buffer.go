package consumer

import (
	"context"
	"sync"
)

// What waits in a partition is bounded by its share of MaxBufferedBytes: a quarter for records that are fetched and not delivered,
// the rest for those of turns that are not done and for effects that wait for their commit. At the bound nothing is fetched, then no
// turn begins, then no model request and no call: while brokers are away turns wait where they are.
const (
	// maxBacklog bounds the records that wait in one partition, whatever their size.
	maxBacklog = 8192
	// minBacklogBytes is what each partition has for its backlog, and for the rest, however many there are: less would starve it
	// between fetches.
	minBacklogBytes = 256 << 10
	maxBacklogBytes = 8 << 20
)

func (w *Worker) backlogLimit() int64 {
	return min(max(w.share.Load()/4, minBacklogBytes), maxBacklogBytes)
}

func (w *Worker) bufferLimit() int64 {
	share := max(w.share.Load(), 2*minBacklogBytes)
	return share - max(share/4, minBacklogBytes)
}

// full reports whether no further turn may begin.
func (p *partition) full() bool {
	return p.store.PendingBytes()+p.held.Load() >= p.w.bufferLimit()
}

// choked reports whether no turn may go on: so much waits for its commit.
func (p *partition) choked() bool { return p.store.PendingBytes() >= p.w.bufferLimit() }

// awaitRoom waits until turns may go on. It returns early when nothing may begin any more, and with the cause when ctx ends.
func (p *partition) awaitRoom(ctx context.Context) error {
	for p.choked() {
		opened := p.room.opened()
		if !p.choked() { // It may have been opened in between.
			return nil
		}
		select {
		case <-opened:
		case <-p.intake.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// freed wakes who waits for room. It is called when effects were committed or dropped, and when a turn is done.
func (p *partition) freed() {
	signal(p.space)
	p.room.open()
}

// room tells any number of goroutines that there may be room now.
type room struct {
	mu sync.Mutex
	// next is closed when there is; nil while nobody waits.
	next chan struct{}
}

func (r *room) opened() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
	return r.next
}

func (r *room) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
}
