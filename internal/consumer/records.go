package consumer

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/statestore"
)

// recordRoom is the memory of a cycle's records: the records, pointers to them, and what keys and headers need. A busy worker has
// thousands of records a cycle, so one that was committed leaves its room to the next. What an aborted one leaves may still be read by
// the client.
type recordRoom struct {
	records []kgo.Record
	list    []*kgo.Record
	keys    []byte
	headers []kgo.RecordHeader
}

// emptied returns the room empty, with as much as is needed.
func (r recordRoom) emptied(records, keys, headers int) recordRoom {
	return recordRoom{
		records: emptied(r.records, records), list: emptied(r.list, records), keys: emptied(r.keys, keys), headers: emptied(r.headers, headers),
	}
}

func emptied[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, 0, n+n/8) // The next cycle may be a little larger.
	}
	clear(s) // Else it keeps the values of a larger cycle alive.
	return s[:0]
}

// records makes the records of an attempt, fresh since producing changes them: all of the changelog, then all outputs.
func (c *committer) records(shares []*share) recordRoom {
	n, keys, headers := 0, 0, 0
	for _, s := range shares {
		n += len(s.batch.Records) + len(s.batch.Outputs)
		for i := range s.batch.Records {
			keys += len(s.batch.Records[i].Key)
		}
		for _, o := range s.batch.Outputs {
			headers += len(o.Headers)
		}
	}
	b := recordBuilder{w: c.w, at: time.Now(), recordRoom: c.room.emptied(n, keys, headers)}
	c.room = recordRoom{}
	for _, s := range shares {
		for i := range s.batch.Records {
			b.changelog(s.p.id, &s.batch.Records[i])
		}
	}
	for _, s := range shares {
		for _, o := range s.batch.Outputs {
			b.output(s.p.id, o)
		}
	}
	for i := range b.records {
		b.list = append(b.list, &b.records[i])
	}
	return b.recordRoom
}

type recordBuilder struct {
	recordRoom

	w *Worker
	// at is when the cycle was made: the client would look at the clock for each record.
	at time.Time
}

func (b *recordBuilder) changelog(partition int32, r *statestore.Record) {
	from := len(b.keys)
	b.keys = append(b.keys, r.Key...)
	b.records = append(b.records, kgo.Record{
		Topic: b.w.cfg.Changelog.Name, Partition: partition, Key: b.keys[from:len(b.keys):len(b.keys)], Value: r.Value, Timestamp: b.at,
	})
}

func (b *recordBuilder) output(partition int32, o *statestore.Output) {
	from := len(b.headers)
	for _, h := range o.Headers {
		b.headers = append(b.headers, kgo.RecordHeader(h))
	}
	to := o.Partition
	if count := b.w.outputs[o.Topic]; to < 0 && o.Key != nil {
		to = murmur2Partition(o.Key, count)
	} else if to < 0 {
		to = partition % count
	}
	b.records = append(b.records, kgo.Record{
		Topic: o.Topic, Partition: to, Key: o.Key, Value: o.Value, Headers: b.headers[from:len(b.headers):len(b.headers)], Timestamp: b.at,
	})
}
