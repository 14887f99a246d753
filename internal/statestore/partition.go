package statestore

import (
	"fmt"
	"sync"

	"github.com/tidwall/btree"
)

// Partition is one assignment of one partition: its committed state, and the effects that are not committed yet, in order. A
// new assignment is a new Partition. It is safe for concurrent use; Take and Store.Commit are for the one committer.
//
// An effect's life: Add puts it at the end of the queue and its mutations into the overlay, so that reads see them at once.
// Take folds a prefix of the queue into a batch. When the batch's transaction is committed its effects are applied to Pebble,
// and only then leave the overlay, so that no read misses them in between; when not, they just stay, and the next Take has
// them again.
type Partition struct {
	id     int32
	store  *Store
	notify func(urgent bool)

	mu struct {
		sync.Mutex
		gone bool
		// queue holds the effects not committed yet; the first has number base.
		queue   []*Effect
		base    uint64
		bytes   int64
		overlay btree.Map[string, pendingValue]
		logs    map[string]*logState
	}
}

// pendingValue is the newest uncommitted value of a key; nil means deleted.
type pendingValue struct {
	value  []byte
	effect uint64
}

// Attach begins an assignment. Whenever an effect was added notify is called, without a lock held; it must not block.
func (s *Store) Attach(partition int32, notify func(urgent bool)) *Partition {
	p := &Partition{id: partition, store: s, notify: notify}
	p.mu.logs = make(map[string]*logState)
	return p
}

// ID is the partition's number.
func (p *Partition) ID() int32 { return p.id }

// Detach ends the assignment: effects that are not committed are dropped, each told so, and every later Add gives ErrGone.
func (p *Partition) Detach() {
	p.mu.Lock()
	dropped := p.mu.queue
	p.mu.gone = true
	p.mu.queue, p.mu.bytes = nil, 0
	p.mu.overlay = btree.Map[string, pendingValue]{}
	p.mu.logs = nil
	p.mu.Unlock()
	settle(dropped, fmt.Errorf("partition %d: %w", p.id, ErrGone))
}

// Add queues an effect for the next commit. It gives ErrGone after Detach; then Settled is not called.
func (p *Partition) Add(e *Effect) error {
	if err := p.add(e); err != nil {
		return err
	}
	p.notify(e.Urgent)
	return nil
}

func (p *Partition) add(e *Effect) error {
	for i := range e.Mutations {
		if m := &e.Mutations[i]; m.Op == OpAppend || m.Op == OpDrop {
			if err := p.ensureLog(m.Key); err != nil {
				return err
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.gone {
		return fmt.Errorf("partition %d: %w", p.id, ErrGone)
	}
	n := p.mu.base + uint64(len(p.mu.queue))
	for i := range e.Mutations {
		p.overlayLocked(&e.Mutations[i], n)
	}
	p.mu.queue = append(p.mu.queue, e)
	p.mu.bytes += int64(e.size())
	return nil
}

func (p *Partition) overlayLocked(m *Mutation, effect uint64) {
	switch m.Op {
	case OpSet:
		p.mu.overlay.Set(m.Key, pendingValue{value: m.Value, effect: effect})
	case OpDelete:
		p.mu.overlay.Set(m.Key, pendingValue{effect: effect})
	case OpAppend:
		l := p.mu.logs[m.Key]
		l.pending = append(l.pending, chunk{effect: effect, bytes: m.Value})
	case OpDrop:
		l := p.mu.logs[m.Key]
		l.dropped, l.dropper = true, effect
	case OpNote: // Notes are read by who expires what they name, and no one else writes to them.
	}
}

// Pending is how many effects wait, and about how many bytes they hold.
func (p *Partition) Pending() (effects int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.queue), p.mu.bytes
}

func settle(effects []*Effect, err error) {
	for _, e := range effects {
		if e.Settled != nil {
			e.Settled(err)
		}
	}
}
