package statestore

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Get returns the value of a key, newest first; false when there is none. The value must not be changed.
func (p *Partition) Get(key string) ([]byte, bool, error) {
	p.mu.Lock()
	if p.mu.gone {
		p.mu.Unlock()
		return nil, false, fmt.Errorf("partition %d: %w", p.id, ErrGone)
	}
	v, ok := p.mu.overlay.Get(key)
	p.mu.Unlock()
	if ok {
		return v.value, v.value != nil, nil
	}
	// An effect that was committed in between is in Pebble before it leaves the overlay, so nothing is missed here.
	return p.store.get(p.id, key)
}

// Last returns the last key with a prefix, and its value; false when there is none.
func (p *Partition) Last(prefix string) (key string, value []byte, found bool, err error) {
	pending, err := p.pendingWith(prefix)
	if err != nil {
		return "", nil, false, err
	}
	deleted := make(map[string]bool)
	for _, e := range slices.Backward(pending) {
		if e.value != nil {
			key, value, found = e.key, e.value, true
			break
		}
		deleted[e.key] = true
	}
	err = p.store.scanBack(p.id, prefix, func(k string, v []byte) (more bool, err error) {
		if found && k <= key {
			return false, nil
		}
		if deleted[k] {
			return true, nil
		}
		key, found = k, true
		value, err = p.store.cfg.Formats.loaded(k, bytes.Clone(v))
		return false, err
	})
	return key, value, found, err
}

// Scan calls visit for each key with the prefix, in order, newest values. Neither argument may be kept or changed. Logs are
// not seen while they are pending.
func (p *Partition) Scan(prefix string, visit func(key string, value []byte) error) error {
	pending, err := p.pendingWith(prefix)
	if err != nil {
		return err
	}
	return p.store.scan(p.id, prefix, func(key string, value []byte) error {
		for len(pending) > 0 && pending[0].key < key {
			if err := pending[0].visit(visit); err != nil {
				return err
			}
			pending = pending[1:]
		}
		if len(pending) > 0 && pending[0].key == key {
			e := pending[0]
			pending = pending[1:]
			return e.visit(visit)
		}
		value, err := p.store.cfg.Formats.loaded(key, value)
		if err != nil {
			return err
		}
		return visit(key, value)
	}, func() error {
		for _, e := range pending {
			if err := e.visit(visit); err != nil {
				return err
			}
		}
		return nil
	})
}

type pendingEntry struct {
	key   string
	value []byte
}

func (e pendingEntry) visit(f func(string, []byte) error) error {
	if e.value == nil {
		return nil
	}
	return f(e.key, e.value)
}

// pendingWith copies the overlay's entries with the prefix. It must come before Pebble is read: what is committed in between
// then shows in both, and the overlay wins.
func (p *Partition) pendingWith(prefix string) ([]pendingEntry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.gone {
		return nil, fmt.Errorf("partition %d: %w", p.id, ErrGone)
	}
	var out []pendingEntry
	p.mu.overlay.Ascend(prefix, func(key string, v pendingValue) bool {
		if len(key) < len(prefix) || key[:len(prefix)] != prefix {
			return false
		}
		out = append(out, pendingEntry{key: key, value: v.value})
		return true
	})
	return out, nil
}

func (s *Store) get(partition int32, key string) ([]byte, bool, error) {
	var value []byte
	found, err := s.find(partition, key, func(it *pebble.Iterator) error {
		v, err := valueOf(it)
		value = bytes.Clone(v)
		return err
	})
	if err != nil || !found {
		return nil, false, err
	}
	value, err = s.cfg.Formats.loaded(key, value)
	return value, err == nil, err
}

func (s *Store) has(partition int32, key string) (bool, error) {
	return s.find(partition, key, func(*pebble.Iterator) error { return nil })
}

// find calls visit where a committed key is.
func (s *Store) find(partition int32, key string, visit func(*pebble.Iterator) error) (bool, error) {
	found, err := s.seek(stateKey(partition, key), visit)
	if err != nil {
		return false, fmt.Errorf("read %q of partition %d: %w", key, partition, s.fault.read(err))
	}
	return found, nil
}

// seek is Pebble's Get by an iterator. What is looked for is nearly always new, and only an iterator can be told to ask the bloom
// filters of the last level too, which has most keys: Get reads a block of it each time. What is there costs a little more.
func (s *Store) seek(key []byte, visit func(*pebble.Iterator) error) (found bool, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return false, err
	}
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	if !it.SeekPrefixGE(key) || !bytes.Equal(it.Key(), key) {
		return false, it.Error() // What could not be read must not look like what is not there.
	}
	return true, visit(it)
}

// scan visits the committed keys with the prefix, then calls done.
func (s *Store) scan(partition int32, prefix string, visit func(key string, value []byte) error, done func() error) (err error) {
	lower := stateKey(partition, prefix)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: prefixEnd(lower), UseL6Filters: true})
	if err != nil {
		return fmt.Errorf("scan %q of partition %d: %w", prefix, partition, s.fault.read(err))
	}
	defer func() {
		if cerr := it.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("scan %q of partition %d: %w", prefix, partition, s.fault.read(cerr))
		}
	}()
	first := it.First
	if isGroup(prefix) {
		first = func() bool { return it.SeekPrefixGE(lower) }
	}
	for ok := first(); ok; ok = it.Next() {
		v, verr := valueOf(it)
		if verr != nil {
			return fmt.Errorf("scan %q of partition %d: %w", prefix, partition, s.fault.read(verr))
		}
		if err := visit(string(it.Key()[5:]), v); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil { // What could not be read must not look like what is not there.
		return fmt.Errorf("scan %q of partition %d: %w", prefix, partition, s.fault.read(err))
	}
	return done()
}

// scanBack visits the committed keys with the prefix from the last on, until visit has enough.
func (s *Store) scanBack(partition int32, prefix string, visit func(key string, value []byte) (more bool, err error)) (err error) {
	lower := stateKey(partition, prefix)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: prefixEnd(lower)})
	if err != nil {
		return fmt.Errorf("read the end of %q of partition %d: %w", prefix, partition, s.fault.read(err))
	}
	defer func() {
		if cerr := it.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("read the end of %q of partition %d: %w", prefix, partition, s.fault.read(cerr))
		}
	}()
	for ok := it.Last(); ok; ok = it.Prev() {
		v, verr := valueOf(it)
		if verr != nil {
			return fmt.Errorf("read the end of %q of partition %d: %w", prefix, partition, s.fault.read(verr))
		}
		if more, err := visit(string(it.Key()[5:]), v); err != nil || !more {
			return err
		}
	}
	return nil
}

// Scan visits the committed state of a partition that need not be attached, values as they are stored.
func (s *Store) Scan(partition int32, prefix string, visit func(key string, value []byte) error) error {
	return s.scan(partition, prefix, visit, func() error { return nil })
}
