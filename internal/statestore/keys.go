package statestore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// Pebble keys are the partition (4 bytes, big endian), a byte that says whether the key is ours alone or also in the
// changelog, and the state key.
const (
	spaceLocal byte = 0
	spaceState byte = 1
	// spaceNotes is ours alone: what is to expire, by the hour.
	spaceNotes byte = 2
)

func stateKey(partition int32, key string) []byte {
	b := make([]byte, stateKeySize(key))
	putStateKey(b, partition, key)
	return b
}

// putStateKey writes a Pebble key of stateKeySize bytes in place.
func putStateKey(b []byte, partition int32, key string) {
	binary.BigEndian.PutUint32(b, uint32(partition)) //nolint:gosec // Partition numbers are not negative.
	b[4] = spaceState
	copy(b[5:], key)
}

func stateKeySize(key string) int { return 5 + len(key) }

func positionKey(partition int32) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 5), uint32(partition)) //nolint:gosec // Partition numbers are not negative.
	return append(b, spaceLocal)
}

// partitionSpan is the range of all Pebble keys of a partition.
func partitionSpan(partition int32) (lower, upper []byte) {
	lower = binary.BigEndian.AppendUint32(nil, uint32(partition))   //nolint:gosec // Partition numbers are not negative.
	upper = binary.BigEndian.AppendUint32(nil, uint32(partition)+1) //nolint:gosec // Partition numbers are not negative.
	return lower, upper
}

// prefixEnd is the smallest key above all keys with the prefix, or nil when there is none.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := range slices.Backward(end) {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// logRecordKey is the key of record n of a log: fixed width, so that they sort in order.
func logRecordKey(log string, n int) string {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(n)) //nolint:gosec // Records are few.
	b := append(make([]byte, 0, len(log)+1+2*len(number)), log...)
	return string(hex.AppendEncode(append(b, '/'), number[:]))
}

// comparer orders keys by their bytes, and tells Pebble which part of a key groups it with others: up to the first slash. A scan
// of one group asks the bloom filters first, and most of the time need not look into any file.
func comparer() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "lathe.v1"
	c.Split = func(key []byte) int {
		if i := bytes.IndexByte(key[min(len(key), 5):], '/'); i >= 0 {
			return 5 + i + 1
		}
		return len(key)
	}
	return &c
}

// isGroup reports whether a prefix is that of one group of keys.
func isGroup(prefix string) bool {
	return strings.IndexByte(prefix, '/') == len(prefix)-1 && prefix != ""
}
