package statestore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// Owners are the owners of the effects that are not committed, each once, in the order of their first effect.
func (p *Partition) Owners() []any {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []any
	seen := make(map[any]bool)
	for _, e := range p.mu.queue {
		if e.Owner != nil && !seen[e.Owner] {
			seen[e.Owner] = true
			out = append(out, e.Owner)
		}
	}
	return out
}

// Drop takes all effects of some owners out of the queue, as if they had never been added, and returns them in order; each is
// settled with ErrDropped. What others have read of them is theirs to know. It is for the one committer, and not while a batch
// that was taken may still be committed.
func (p *Partition) Drop(owners ...any) []*Effect {
	dropped := p.drop(owners)
	settle(dropped, fmt.Errorf("partition %d: %w", p.id, ErrDropped))
	return dropped
}

// drop builds everything anew from the effects that stay: who comes behind a dropped one has another number now.
func (p *Partition) drop(owners []any) (dropped []*Effect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.gone {
		return nil
	}
	p.mu.drops++
	queue := p.mu.queue
	p.mu.queue = make([]*Effect, 0, len(queue))
	p.bytes.Store(0)
	p.mu.overlay = btree.Map[string, pendingValue]{}
	for _, l := range p.mu.logs {
		l.pending, l.dropped, l.dropper = nil, false, 0
	}
	for _, e := range queue {
		if e.Owner != nil && slices.Contains(owners, e.Owner) {
			dropped = append(dropped, e)
			continue
		}
		p.queueLocked(e)
	}
	return dropped
}

// EffectOfRecord is the effect that the changelog record i of a batch comes from: the last that has set its key or, for the record
// of a log, one that it has a part of. It is nil for a record that belongs to no effect. It is good until the next Take or Drop.
func (b *Batch) EffectOfRecord(i int) *Effect {
	r := &b.Records[i]
	touches := func(whole bool) func(*Effect) bool {
		return func(e *Effect) bool {
			return slices.ContainsFunc(e.Mutations, func(m Mutation) bool { return b.from(r, &m, whole) })
		}
	}
	if e := b.last(touches(true)); e != nil {
		return e
	}
	return b.last(touches(false))
}

// from reports whether a record comes of a mutation. Of those that have appended to a log, whole asks for what the record is all of,
// as it is after Split.
func (b *Batch) from(r *Record, m *Mutation, whole bool) bool {
	switch m.Op {
	case OpSet, OpDelete:
		return m.Key == r.Key
	case OpAppend:
		return logOf(r.Key) == m.Key && r.Value != nil && (!whole || b.p.isChunk(r, m.value()))
	case OpDrop:
		return logOf(r.Key) == m.Key && r.Value == nil
	case OpNote:
	}
	return false
}

// isChunk reports whether the record holds one chunk and nothing else.
func (p *Partition) isChunk(r *Record, body []byte) bool {
	value := append([]byte{Format}, body...)
	return bytes.Equal(p.store.cfg.Formats.stored(r.Key, value), r.Value)
}

// EffectOfOutput is the effect that an output of the batch belongs to. It is good until the next Take or Drop.
func (b *Batch) EffectOfOutput(o *Output) *Effect {
	return b.last(func(e *Effect) bool {
		for i := range e.Outputs {
			if &e.Outputs[i] == o {
				return true
			}
		}
		return false
	})
}

func (b *Batch) last(match func(*Effect) bool) *Effect {
	b.p.mu.Lock()
	effects := slices.Clone(b.p.mu.queue[:min(b.Effects, len(b.p.mu.queue))])
	b.p.mu.Unlock()
	for _, e := range slices.Backward(effects) {
		if match(e) {
			return e
		}
	}
	return nil
}

// logOf is the log that a key is a record of, if it is one of a log.
func logOf(key string) string {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i]
	}
	return ""
}

// Split makes the records of logs smaller from now on if the changelog record i of the batch was joined of several chunks. It
// reports false when it was not, so that smaller records would change nothing.
func (p *Partition) Split(b *Batch, i int) bool {
	r := &b.Records[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.mu.logs[logOf(r.Key)]
	if l == nil || len(r.Value) < 2 || slices.ContainsFunc(l.pending, func(c chunk) bool { return p.isChunk(r, c.mutation.value()) }) {
		return false
	}
	p.mu.recordBytes = min(p.mu.recordBytes, len(r.Value)/2)
	return true
}
