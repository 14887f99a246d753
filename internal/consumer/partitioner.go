package consumer

import "hash/crc32"

// Partitioner is how producers choose the partition of a key.
type Partitioner string

// The partitioners.
const (
	// PartitionerMurmur2 is what Java and franz-go producers do.
	PartitionerMurmur2 Partitioner = "murmur2"
	// PartitionerCRC32 is librdkafka's default for keyed records.
	PartitionerCRC32 Partitioner = "crc32"
	// PartitionerAny takes every key on any partition.
	PartitionerAny Partitioner = "any"
)

func (p Partitioner) known() bool {
	switch p {
	case PartitionerMurmur2, PartitionerCRC32, PartitionerAny:
		return true
	}
	return false
}

// Place is the partition that a key belongs on; false when only the producers know.
func (p Partitioner) Place(key []byte, partitions int32) (int32, bool) {
	switch p {
	case PartitionerMurmur2:
		return murmur2Partition(key, partitions), true
	case PartitionerCRC32:
		return int32(crc32.ChecksumIEEE(key) % uint32(partitions)), true //nolint:gosec // Counts fit.
	case PartitionerAny:
		return 0, false
	}
	return 0, false
}

// wrong reports whether a key cannot be on the partition.
func (p Partitioner) wrong(key []byte, partition, partitions int32) bool {
	place, known := p.Place(key, partitions)
	return known && place != partition
}

// murmur2Partition is the partition of a key in Java's default partitioner.
func murmur2Partition(key []byte, partitions int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is the 32-bit MurmurHash2 with the seed that Kafka uses.
func murmur2(b []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(b)) //nolint:gosec // Keys are short.
	for len(b) >= 4 {
		k := uint32(b[3])<<24 | uint32(b[2])<<16 | uint32(b[1])<<8 | uint32(b[0])
		b = b[4:]
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(b[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
