package statestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Position says how far a partition's local state has come. It stands in Pebble alone, in the batch that brought the state
// there, so it can never be ahead of the state.
type Position struct {
	// ChangelogID is the topic id of the changelog; a recreated topic has another.
	ChangelogID [16]byte
	// ChangelogNext is the offset after the last changelog record applied.
	ChangelogNext int64
	// LeaderEpoch is the leader epoch of that record, -1 when unknown.
	LeaderEpoch int32
	// Incarnation and CID name the last commit cycle that was applied by this process, 0 after a restore.
	Incarnation, CID uint64
	// At is when it was applied.
	At time.Time
}

const (
	positionSize = 1 + 1 + 16 + 8 + 4 + 8 + 8 + 8
	// localFormat is the version of all that stands in Pebble alone, positions and notes. When it changes, or is not known, the
	// partition is restored from its changelog, so nothing here needs to be read by another release.
	localFormat byte = 1
)

// encode adds the newest format of values that the release knows: what stands beside the position may be in it, so that an older
// release must not resume from there. It restores instead, and learns from the changelog whether it knows all of it.
func (p Position) encode(newest byte) []byte {
	b := make([]byte, 0, positionSize)
	b = append(b, localFormat, newest)
	b = append(b, p.ChangelogID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(p.ChangelogNext)) //nolint:gosec // Stored as two's complement.
	b = binary.BigEndian.AppendUint32(b, uint32(p.LeaderEpoch))   //nolint:gosec // Stored as two's complement.
	b = binary.BigEndian.AppendUint64(b, p.Incarnation)
	b = binary.BigEndian.AppendUint64(b, p.CID)
	return binary.BigEndian.AppendUint64(b, uint64(p.At.UnixMilli()))
}

func decodePosition(b []byte, newest byte) (Position, error) {
	if len(b) != positionSize || b[0] != localFormat || b[1] > newest {
		return Position{}, ErrFormat
	}
	b = b[1:]
	var p Position
	copy(p.ChangelogID[:], b[1:17])
	p.ChangelogNext = int64(binary.BigEndian.Uint64(b[17:])) //nolint:gosec // Stored as two's complement.
	p.LeaderEpoch = int32(binary.BigEndian.Uint32(b[25:]))   //nolint:gosec // Stored as two's complement.
	p.Incarnation = binary.BigEndian.Uint64(b[29:])
	p.CID = binary.BigEndian.Uint64(b[37:])
	p.At = time.UnixMilli(int64(binary.BigEndian.Uint64(b[45:]))).UTC() //nolint:gosec // Stored as two's complement.
	return p, nil
}

// Position returns how far the local state of a partition has come; false when there is none. A position in an unknown format
// is an error that wraps ErrFormat.
func (s *Store) Position(partition int32) (Position, bool, error) {
	v, closer, err := s.db.Get(positionKey(partition))
	if errors.Is(err, pebble.ErrNotFound) {
		return Position{}, false, nil
	}
	if err != nil {
		return Position{}, false, fmt.Errorf("read position of partition %d: %w", partition, s.fault.read(err))
	}
	p, err := decodePosition(v, s.cfg.Formats.Newest)
	if err := errors.Join(err, s.fault.read(closer.Close())); err != nil {
		return Position{}, false, fmt.Errorf("read position of partition %d: %w", partition, err)
	}
	return p, true, nil
}
