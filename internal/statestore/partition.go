package statestore

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// Partition is one assignment of one partition: its committed state, and the effects that are not committed yet, in order. A
// new assignment is a new Partition. It is safe for concurrent use; Take and Store.Commit are for the one committer.
//
// An effect's life: Add puts it at the end of the queue and its mutations into the overlay, so that reads see them at once.
// Take folds a prefix of the queue into a batch. When the batch's transaction is committed those who wait are told, the effects
// are applied to Pebble, and only then leave the overlay, so that no read misses them in between; when not, they just stay, and
// the next Take has them again. Drop takes those of one owner out of the queue, as if they had never been added.
type Partition struct {
	id     int32
	store  *Store
	notify func(urgent bool)
	// bytes is about what the queue holds. It changes with the lock held.
	bytes atomic.Int64

	mu struct {
		sync.Mutex
		gone bool
		// queue holds the effects not committed yet; the first has number base.
		queue   []*Effect
		base    uint64
		overlay btree.Map[string, pendingValue]
		logs    map[string]*logState
		// drops counts the calls of Drop.
		drops uint64
		// recordBytes bounds the records that logs are joined into.
		recordBytes int
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
	p.mu.recordBytes = s.cfg.RecordBytes
	return p
}

// ID is the partition's number.
func (p *Partition) ID() int32 { return p.id }

// Detach ends the assignment: effects that are not committed are dropped, each told so, and every later Add gives ErrGone.
func (p *Partition) Detach() {
	p.mu.Lock()
	dropped := p.mu.queue
	p.mu.gone = true
	p.mu.queue = nil
	p.bytes.Store(0)
	p.mu.overlay = btree.Map[string, pendingValue]{}
	p.mu.logs = nil
	p.mu.Unlock()
	settle(dropped, fmt.Errorf("partition %d: %w", p.id, ErrGone))
}

// Add queues an effect for the next commit. It gives ErrGone after Detach; then Settled is not called.
func (p *Partition) Add(e *Effect) error { return p.addIf(e, nil) }

// AddSince queues an effect that comes of what was read after Drops gave this number. If effects were dropped in between, which may
// have been among what was read, it gives ErrStale and does nothing.
func (p *Partition) AddSince(e *Effect, drops uint64) error { return p.addIf(e, &drops) }

// Drops is how often effects were dropped.
func (p *Partition) Drops() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.drops
}

func (p *Partition) addIf(e *Effect, drops *uint64) error {
	if err := p.add(e, drops); err != nil {
		return err
	}
	p.notify(e.Urgent)
	return nil
}

func (p *Partition) add(e *Effect, drops *uint64) error {
	for {
		unknown, err := p.tryAdd(e, drops)
		if err != nil || unknown == "" {
			return err
		}
		if err := p.ensureLog(unknown); err != nil {
			return err
		}
	}
}

// tryAdd queues the effect, or gives a log of it that nobody has looked up yet, which is done without the lock.
func (p *Partition) tryAdd(e *Effect, drops *uint64) (unknown string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.gone {
		return "", fmt.Errorf("partition %d: %w", p.id, ErrGone)
	}
	if drops != nil && *drops != p.mu.drops {
		return "", fmt.Errorf("partition %d: %w", p.id, ErrStale)
	}
	for i := range e.Mutations {
		m := &e.Mutations[i]
		if m.Op != OpAppend && m.Op != OpDrop {
			continue
		}
		if _, known := p.mu.logs[m.Key]; !known {
			return m.Key, nil
		}
	}
	p.queueLocked(e)
	return "", nil
}

func (p *Partition) queueLocked(e *Effect) {
	n := p.mu.base + uint64(len(p.mu.queue))
	for i := range e.Mutations {
		p.overlayLocked(&e.Mutations[i], n)
	}
	p.mu.queue = append(p.mu.queue, e)
	e.bytes = e.size()
	p.bytes.Add(int64(e.bytes))
}

func (p *Partition) overlayLocked(m *Mutation, effect uint64) {
	switch m.Op {
	case OpSet:
		p.mu.overlay.Set(m.Key, pendingValue{value: m.Value, effect: effect})
	case OpDelete:
		p.mu.overlay.Set(m.Key, pendingValue{effect: effect})
	case OpAppend:
		l := p.mu.logs[m.Key]
		l.pending = append(l.pending, chunk{effect: effect, mutation: m})
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
	return len(p.mu.queue), p.bytes.Load()
}

// PendingBytes is about how many bytes the effects hold that wait.
func (p *Partition) PendingBytes() int64 { return p.bytes.Load() }

func settle(effects []*Effect, err error) {
	for _, e := range effects {
		if e.Settled != nil {
			e.Settled(err)
		}
	}
}
