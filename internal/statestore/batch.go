package statestore

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Batch is a prefix of a partition's effects, folded into what a transaction has to write. Its fields must not be changed.
type Batch struct {
	// Records go to the changelog. Of each key the batch has one record, the last.
	Records []Record
	// Outputs go to other topics, in order.
	Outputs []*Output
	// Offsets are the input records that the batch completes.
	Offsets []int64
	// Effects is how many effects the batch holds.
	Effects int

	p     *Partition
	logs  map[string]int // records that the batch adds to a log
	notes []Mutation
}

// Partition is the partition the batch was taken from.
func (b *Batch) Partition() *Partition { return b.p }

// Set adds a state record that belongs to the batch as a whole.
func (b *Batch) Set(key string, value []byte) {
	b.Records = append(b.Records, Record{Key: key, Value: b.p.store.cfg.Formats.stored(key, value)})
}

// Take folds a prefix of the queue: as many effects as fit into about maxBytes and maxRecords, at least one. It gives nil when
// nothing waits. A batch is good until the next Take.
func (p *Partition) Take(maxBytes, maxRecords int) (*Batch, error) {
	effects, base := p.prefix(maxBytes, maxRecords)
	if len(effects) == 0 {
		return nil, nil //nolint:nilnil // Nothing waits; there is no error and no batch.
	}
	outputs := 0
	for _, e := range effects {
		outputs += len(e.Outputs)
	}
	f := folder{batch: &Batch{p: p, Effects: len(effects), Outputs: make([]*Output, 0, outputs)}, keys: make(map[string]int)}
	for _, e := range effects {
		f.add(e)
	}
	if err := f.finish(base + uint64(len(effects))); err != nil {
		return nil, err
	}
	return f.batch, nil
}

func (p *Partition) prefix(maxBytes, maxRecords int) ([]*Effect, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size, records, n := 0, 0, 0
	for _, e := range p.mu.queue {
		size, records = size+e.bytes, records+e.records()
		if n > 0 && (size > maxBytes || records > maxRecords) {
			break
		}
		n++
	}
	return slices.Clone(p.mu.queue[:n]), p.mu.base
}

// folder builds a batch: for each key the last mutation, for each log its new records or, once it is dropped, a tombstone for
// each record that was committed before.
type folder struct {
	batch *Batch
	keys  map[string]int // index in batch.Records
	logs  []string       // logs touched, in order
	seen  map[string]bool
}

func (f *folder) add(e *Effect) {
	for i := range e.Mutations {
		m := &e.Mutations[i]
		switch m.Op {
		case OpSet:
			f.set(m.Key, m.Value)
		case OpDelete:
			f.set(m.Key, nil)
		case OpAppend, OpDrop:
			f.touch(m.Key)
		case OpNote:
			f.batch.notes = append(f.batch.notes, *m)
		}
	}
	for i := range e.Outputs {
		f.batch.Outputs = append(f.batch.Outputs, &e.Outputs[i])
	}
	if e.Offset != NoOffset {
		f.batch.Offsets = append(f.batch.Offsets, e.Offset)
	}
}

func (f *folder) set(key string, value []byte) {
	if i, ok := f.keys[key]; ok {
		f.batch.Records[i].Value = value
		return
	}
	f.keys[key] = len(f.batch.Records)
	f.batch.Records = append(f.batch.Records, Record{Key: key, Value: value})
}

func (f *folder) touch(log string) {
	if f.seen == nil {
		f.seen = make(map[string]bool)
	}
	if !f.seen[log] {
		f.seen[log] = true
		f.logs = append(f.logs, log)
	}
}

// finish drops deletes of keys that were never committed and adds the logs' records. end is the number after the last effect.
func (f *folder) finish(end uint64) error {
	kept := f.batch.Records[:0]
	for _, r := range f.batch.Records {
		if r.Value == nil {
			found, err := f.batch.p.store.has(f.batch.p.id, r.Key)
			if err != nil {
				return err
			}
			if !found {
				continue
			}
		}
		kept = append(kept, r)
	}
	f.batch.Records = kept
	f.finishLogs(end)
	for i := range f.batch.Records {
		r := &f.batch.Records[i]
		r.Value = f.batch.p.store.cfg.Formats.stored(r.Key, r.Value)
	}
	return nil
}

func (f *folder) finishLogs(end uint64) {
	p, b := f.batch.p, f.batch
	b.logs = make(map[string]int, len(f.logs))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range f.logs {
		l := p.mu.logs[key]
		if l == nil { // Detached meanwhile: the batch will not be used.
			continue
		}
		if l.droppedBefore(end) {
			for n := range l.settled {
				b.Records = append(b.Records, Record{Key: logRecordKey(key, n)})
			}
			continue
		}
		records := joinChunks(l.chunksBefore(end), p.mu.recordBytes)
		for i, r := range records {
			b.Records = append(b.Records, Record{Key: logRecordKey(key, l.settled+i), Value: r})
		}
		b.logs[key] = len(records)
	}
}

// Settlement is a batch that its transaction has committed, and the position that brings.
type Settlement struct {
	Batch    *Batch
	Position Position
}

// Waiting are those who wait for effects that are committed. Each is to be told, once and without an error; that may be later, and
// side by side with whatever happens to the partition.
type Waiting []func(error)

// Tell tells all of them, and lets others run after each: hundreds may wait, and if all of them could run at once, whoever is in a hurry
// would queue behind their work.
func (w Waiting) Tell() {
	for _, settled := range w {
		settled(nil)
		runtime.Gosched()
	}
}

// Waiting returns who waits for the batch's effects. It is for the time between the commit of its transaction and Store.Commit: they
// need not wait until the effects are applied, since until then reads find them in the queue. From here on Detach does not tell them.
func (b *Batch) Waiting() (waiting Waiting) {
	p := b.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.gone {
		return nil
	}
	for _, e := range p.mu.queue[:b.Effects] {
		if e.Settled != nil {
			waiting = append(waiting, e.Settled)
			e.Settled = nil
		}
	}
	return waiting
}

// Commit applies batches whose transaction was committed, in one Pebble batch. Batches of partitions that were detached meanwhile
// are left out: the changelog has them.
func (s *Store) Commit(settlements []Settlement) error {
	b := s.db.NewBatchWithSize(settledBytes(settlements), pebble.WithMaxRetainedSizeBytes(keptBatchBytes))
	defer b.Close() //nolint:errcheck // Close of a committed batch has no error to give.
	for _, st := range settlements {
		if st.Batch.p.isGone() {
			continue
		}
		if err := s.putRecords(b, st.Batch.p.id, st.Batch.Records, st.Position); err != nil {
			return err
		}
		if err := putNotes(b, st.Batch.notes); err != nil {
			return fmt.Errorf("commit to state store: %w", err)
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("commit to state store: %w", err)
	}
	for _, st := range settlements {
		st.Batch.p.settled(st.Batch)
	}
	return nil
}

// keptBatchBytes is how large the memory of a batch may be to be used again for the next cycle. A busy worker's cycle takes about 1 MiB,
// which Pebble by itself would just not keep.
const keptBatchBytes = 4 << 20

// settledBytes is about how large the Pebble batch becomes: growing it step by step would copy it each time.
func settledBytes(settlements []Settlement) int {
	n := 1 << 10
	for _, st := range settlements {
		for i := range st.Batch.Records {
			n += 2*len(st.Batch.Records[i].Key) + len(st.Batch.Records[i].Value) + 24
		}
		n += 128
	}
	return n
}

func (p *Partition) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.gone
}

// settled takes the batch's effects out of queue and overlay.
func (p *Partition) settled(b *Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.gone {
		return
	}
	done := p.mu.queue[:b.Effects]
	p.mu.queue = p.mu.queue[b.Effects:]
	p.mu.base += uint64(b.Effects) //nolint:gosec // Counts are not negative.
	for _, e := range done {
		p.bytes.Add(-int64(e.bytes))
		for i := range e.Mutations {
			p.settleMutationLocked(&e.Mutations[i], b)
		}
	}
	clear(done)
}

func (p *Partition) settleMutationLocked(m *Mutation, b *Batch) {
	switch m.Op {
	case OpSet, OpDelete:
		if v, ok := p.mu.overlay.Get(m.Key); ok && v.effect < p.mu.base {
			p.mu.overlay.Delete(m.Key)
		}
	case OpAppend, OpDrop:
		l := p.mu.logs[m.Key]
		if l == nil {
			return
		}
		if l.droppedBefore(p.mu.base) {
			delete(p.mu.logs, m.Key)
			return
		}
		l.settled += b.logs[m.Key]
		delete(b.logs, m.Key)
		l.pending = slices.DeleteFunc(l.pending, func(c chunk) bool { return c.effect < p.mu.base })
	case OpNote:
	}
}
