package consumer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/schemas"
)

// FuzzChunks: whatever a broker answers a fetch of the changelog with, reading it goes forward or says that it is damaged.
func FuzzChunks(f *testing.F) {
	batch := make([]byte, batchHeader)
	batch[batchMagic] = 2
	f.Add(batch, int64(0))
	batch[batchLength+3] = batchHeader - batchLength - 4
	f.Add(slices.Concat(batch, batch), int64(7))
	f.Fuzz(func(t *testing.T, b []byte, offset int64) {
		if offset < 0 {
			return
		}
		r := newLogReader(nil, Topic{Name: "changelog"}, 1<<20, nil)
		at := offset
		err := r.chunks(&kmsg.FetchResponseTopicPartition{RecordBatches: b}, offset, func(c chunk) error {
			if c.next < at {
				t.Errorf("it goes back from %d to %d", at, c.next)
			}
			at = c.next
			return nil
		})
		if err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("got %v", err)
		}
	})
}

// FuzzReadDeadLetter: a dead letter is read as it was written, whatever headers the refused record brought.
func FuzzReadDeadLetter(f *testing.F) {
	f.Add(headerReason, []byte("x"), "conflict", "why", int32(3), int64(7))
	f.Add(headerCut, []byte(nil), "", "", int32(-1), int64(-1))
	f.Fuzz(func(t *testing.T, key string, value []byte, reason, detail string, partition int32, offset int64) {
		brought := []kgo.RecordHeader{{Key: key, Value: value}, {Key: HeaderReplayedFrom, Value: value}}
		if _, ok := ReadDeadLetter(&kgo.Record{Headers: brought}); ok {
			t.Error("a record of somebody else is taken for a dead letter")
		}
		w := &Worker{deps: Deps{Now: time.Now}}
		rec := &Record{Topic: "turns", Partition: partition, Offset: offset}
		headers := slices.Clone(brought)
		for _, h := range w.reasonHeaders(rec, &schemas.Error{Code: schemas.Code(reason), Message: detail}) {
			headers = append(headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		d, ok := ReadDeadLetter(&kgo.Record{Headers: headers})
		if !ok || string(d.Reason) != reason || !strings.HasPrefix(detail, d.Detail) || d.Partition != partition || d.Offset != offset || len(d.Headers) != len(brought) {
			t.Errorf("read %+v, %t", d, ok)
		}
	})
}
