package consumer

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/statestore"
)

// chunk is a part of the answer to a fetch: committed records, and where to go on.
type chunk struct {
	records []statestore.Record
	bytes   int
	// next is the offset to read on from. epoch is the leader epoch of what was read, -1 without any.
	next  int64
	epoch int32
}

// chunkBytes bounds the records of a chunk, save that one batch is never split: it has to be decompressed as a whole, and was
// produced as one, so it is no larger than max.message.bytes was then.
const chunkBytes = 1 << 20

// chunks decompresses the answer to a fetch batch by batch, so that what it holds in memory is bounded however well the changelog
// compresses. visit gets chunks in order; its error ends it.
func (r *logReader) chunks(rp *kmsg.FetchResponseTopicPartition, offset int64, visit func(chunk) error) error {
	single := *rp
	single.AbortedTransactions = slices.Clone(rp.AbortedTransactions)
	c := chunk{next: offset, epoch: -1}
	for rest := rp.RecordBatches; ; {
		var ok bool
		if single.RecordBatches, rest, ok = cutBatch(rest); !ok {
			break
		}
		if err := r.decode(&single, &c); err != nil {
			return err
		}
		if c.bytes < chunkBytes {
			continue
		}
		if err := visit(c); err != nil {
			return err
		}
		c = chunk{next: c.next, epoch: c.epoch}
	}
	return visit(c)
}

// Where things stand in a record batch of format 2.
const (
	batchEpoch  = 12
	batchMagic  = 16
	batchAttrs  = 21
	batchHeader = 61

	attrControl = 0x20
)

// cutBatch cuts the first batch off. An answer may end with a part of one, which is of no use.
func cutBatch(b []byte) (batch, rest []byte, ok bool) {
	if len(b) < batchHeader {
		return nil, nil, false
	}
	n := int64(batchLength) + 4 + int64(binary.BigEndian.Uint32(b[batchLength:]))
	if n < batchHeader || n > int64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// decode adds the committed records of the one batch in rp to a chunk. An abort marker takes its transaction out of the list of
// aborted ones: what its producer writes after it is of another.
func (r *logReader) decode(rp *kmsg.FetchResponseTopicPartition, c *chunk) error {
	b := rp.RecordBatches
	control := b[batchMagic] == 2 && b[batchAttrs+1]&attrControl != 0
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: c.next, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic.Name, Partition: rp.Partition, KeepControlRecords: control,
	}, rp, r.decompressor, nil)
	if fp.Err != nil {
		return fmt.Errorf("%w: offset %d: %w", errDamaged, next, fp.Err)
	}
	c.next = max(c.next, next)
	c.epoch = max(c.epoch, int32(binary.BigEndian.Uint32(b[batchEpoch:]))) //nolint:gosec // Stored as two's complement.
	if control {
		if len(fp.Records) == 1 && isAbort(fp.Records[0]) {
			dropAborted(rp, fp.Records[0].ProducerID, fp.Records[0].Offset)
		}
		return nil
	}
	for _, rec := range fp.Records {
		c.records = append(c.records, statestore.Record{Key: string(rec.Key), Value: rec.Value})
		c.bytes += len(rec.Key) + len(rec.Value)
	}
	return nil
}

// isAbort reports whether a control record is an abort marker: its key is a version and a type.
func isAbort(rec *kgo.Record) bool {
	return len(rec.Key) >= 4 && binary.BigEndian.Uint16(rec.Key[2:]) == 0
}

// dropAborted takes the first aborted transaction of a producer from the list, which the marker at an offset has ended.
func dropAborted(rp *kmsg.FetchResponseTopicPartition, producer, marker int64) {
	first := -1
	for i, a := range rp.AbortedTransactions {
		if a.ProducerID == producer && (first < 0 || a.FirstOffset < rp.AbortedTransactions[first].FirstOffset) {
			first = i
		}
	}
	if first >= 0 && rp.AbortedTransactions[first].FirstOffset <= marker {
		rp.AbortedTransactions = slices.Delete(rp.AbortedTransactions, first, first+1)
	}
}
