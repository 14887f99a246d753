package statestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Aged says of a stored value when it was current, for what is to expire. The store notes it beside the values, in Pebble alone:
// what one cycle or one piece of a restore brings is one note for each class and hour, so that a turn costs some bytes in a
// note and no key of its own.
type Aged struct {
	// Class tells apart what is kept for different times.
	Class byte
	At    time.Time
	// Name is what is noted: the key, or what stands for several keys that expire together.
	Name string
}

// Note is what was noted of one class in one hour by one batch. A name may be noted although its value is newer by now, or gone.
type Note struct {
	Names []string

	key string
}

// Done removes the note with the commit of the effect that it is added to, or leaves it with the names that are still to expire.
func (n Note) Done(left []string) Mutation {
	m := Mutation{Op: OpNote, Key: n.key}
	for _, name := range left {
		m.Value = appendName(m.Value, name)
	}
	return m
}

const (
	ageBucket = time.Hour
	// noteKeySize is partition, space, class, bucket and the changelog position of the batch.
	noteKeySize = 5 + 1 + 4 + 8
)

// noteBucket numbers the hours.
func noteBucket(at time.Time) uint32 {
	return uint32(max(0, min(at.Unix()/int64(ageBucket/time.Second), 1<<32-1))) //nolint:gosec // Bounded.
}

// notesBefore is the first key after the notes of a class whose hour was over at a time.
func notesBefore(partition int32, class byte, before time.Time) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, noteKeySize), uint32(partition)) //nolint:gosec // Partition numbers are not negative.
	b = append(b, spaceNotes, class)
	return binary.BigEndian.AppendUint32(b, noteBucket(before))
}

func appendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

var errNote = errors.New("it is damaged")

func parseNames(b []byte) ([]string, error) {
	var out []string
	for len(b) > 0 {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) { //nolint:gosec // What was read is not longer than what there is.
			return nil, errNote
		}
		end := n + int(size) //nolint:gosec // Bounded by the slice.
		out, b = append(out, string(b[n:end])), b[end:]
	}
	return out, nil
}

// noteGroup is what a batch notes under one key.
type noteGroup struct {
	class  byte
	bucket uint32
}

// notes gathers what a batch notes. Nearly always all of a class fall into one hour.
type notes struct {
	groups map[noteGroup][]byte
}

func (n *notes) add(a Aged) {
	if n.groups == nil {
		n.groups = make(map[noteGroup][]byte, 2)
	}
	g := noteGroup{class: a.Class, bucket: noteBucket(a.At)}
	n.groups[g] = appendName(n.groups[g], a.Name)
}

// put writes the notes. Each batch of a partition has another position, so none replaces one of an earlier batch.
func (n *notes) put(b *pebble.Batch, partition int32, position int64) error {
	for g, names := range n.groups {
		key := binary.BigEndian.AppendUint32(make([]byte, 0, noteKeySize), uint32(partition)) //nolint:gosec // Partition numbers are not negative.
		key = append(key, spaceNotes, g.class)
		key = binary.BigEndian.AppendUint32(key, g.bucket)
		key = binary.BigEndian.AppendUint64(key, uint64(position)) //nolint:gosec // Offsets are not negative.
		if err := b.Set(key, names, nil); err != nil {
			return err
		}
	}
	return nil
}

// NextNote returns the oldest note of a class that comes after another, or the oldest of all after the zero note, if all in it was
// noted for times before a time; false when there is none.
func (p *Partition) NextNote(class byte, before time.Time, after Note) (n Note, found bool, err error) {
	opts := &pebble.IterOptions{LowerBound: notesBefore(p.id, class, time.Time{}), UpperBound: notesBefore(p.id, class, before)}
	if after.key != "" {
		opts.LowerBound = append([]byte(after.key), 0)
	}
	it, err := p.store.db.NewIter(opts)
	if err != nil {
		return n, false, fmt.Errorf("read the notes of partition %d: %w", p.id, p.store.fault.read(err))
	}
	defer func() {
		if cerr := it.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("read the notes of partition %d: %w", p.id, p.store.fault.read(cerr))
		}
	}()
	if !it.First() {
		return n, false, nil
	}
	value, err := valueOf(it)
	if err != nil {
		return n, false, fmt.Errorf("read the notes of partition %d: %w", p.id, p.store.fault.read(err))
	}
	if n.Names, err = parseNames(value); err != nil {
		return n, false, fmt.Errorf("read note %x: %w", it.Key(), err)
	}
	n.key = string(it.Key())
	return n, true, nil
}

// putNotes applies what effects did to notes.
func putNotes(b *pebble.Batch, done []Mutation) error {
	for _, m := range done {
		op := deferred(b, len(m.Key), m.Value)
		copy(op.Key, m.Key)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	return nil
}
