package statestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Record is one changelog record: the state key, and its value or nil for a tombstone.
type Record struct {
	Key   string
	Value []byte
}

// Restore applies changelog records, in order, and the position after them, in one batch. It is for partitions that are not
// attached. A value in an unknown format is a *FormatError: this release must not have the partition.
func (s *Store) Restore(partition int32, records []Record, pos Position) error {
	b := s.db.NewBatch()
	defer b.Close() //nolint:errcheck // Close of a committed batch has no error to give.
	if err := s.putRecords(b, partition, records, pos); err != nil {
		return err
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("restore partition %d: %w", partition, err)
	}
	return nil
}

// Wipe removes the local state of a partition and its position. It is for partitions that are not attached.
func (s *Store) Wipe(partition int32) error {
	lower, upper := partitionSpan(partition)
	if err := s.db.DeleteRange(lower, upper, pebble.NoSync); err != nil {
		return fmt.Errorf("wipe partition %d: %w", partition, err)
	}
	return nil
}

// putRecords adds records, the notes that they make, and the position after them to a Pebble batch.
func (s *Store) putRecords(b *pebble.Batch, partition int32, records []Record, pos Position) error {
	var aging notes
	for i := range records {
		r := &records[i]
		if err := putRecord(b, partition, r); err != nil {
			return fmt.Errorf("apply a record of partition %d: %w", partition, err)
		}
		if r.Value == nil {
			continue
		}
		value, err := s.cfg.Formats.loaded(r.Key, r.Value)
		if err != nil {
			return fmt.Errorf("apply a record of partition %d: %w", partition, err)
		}
		if s.cfg.Age == nil {
			continue
		}
		if a, ages := s.cfg.Age(r.Key, value); ages {
			aging.add(a)
		}
	}
	if err := aging.put(b, partition, pos.ChangelogNext); err != nil {
		return fmt.Errorf("note what is to expire in partition %d: %w", partition, err)
	}
	if err := b.Set(positionKey(partition), pos.encode(s.cfg.Formats.Newest), nil); err != nil {
		return fmt.Errorf("apply the position of partition %d: %w", partition, err)
	}
	return nil
}

// putRecord writes key and value where the batch keeps them, so that neither is copied twice.
func putRecord(b *pebble.Batch, partition int32, r *Record) error {
	op := deferred(b, stateKeySize(r.Key), r.Value)
	putStateKey(op.Key, partition, r.Key)
	return op.Finish()
}

// deferred begins to set a value, or to delete if it is nil, under a key of so many bytes that is yet to be written.
func deferred(b *pebble.Batch, keySize int, value []byte) *pebble.DeferredBatchOp {
	if value == nil {
		return b.DeleteDeferred(keySize)
	}
	op := b.SetDeferred(keySize, len(value))
	copy(op.Value, value)
	return op
}
