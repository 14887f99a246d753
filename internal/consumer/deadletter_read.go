package consumer

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// HeaderReplayedFrom stands on a record that was produced again from a dead letter, and says which: <topic>/<partition>/<offset>.
// It is not part of the payload hash, so the turn is the one it was.
const HeaderReplayedFrom = "lathe_replayed_from"

// DeadLetter is a record of the dead letter topic, taken apart again.
type DeadLetter struct {
	Reason schemas.Code
	Detail string
	// Topic, Partition and Offset are where the refused record stood.
	Topic     string
	Partition int32
	Offset    int64
	// At is when it was refused, by the worker's clock.
	At time.Time
	// Headers are the record's own.
	Headers []kgo.RecordHeader
	// Cut says that the value is not whole; then ValueBytes and ValueSHA256 (in hex) are those of the whole.
	Cut         bool
	ValueBytes  int
	ValueSHA256 string
	// ReplayedFrom is the dead letter that the refused record was replayed from; empty as a rule.
	ReplayedFrom string
}

// ReadDeadLetter takes a record of the dead letter topic apart. It reports false for one that no worker wrote. What a worker adds
// stands at the end, so a refused record that brought headers of the same names keeps them.
func ReadDeadLetter(rec *kgo.Record) (DeadLetter, bool) {
	d := DeadLetter{ValueBytes: len(rec.Value)}
	headers := rec.Headers
	if rest, values, ok := cutTail(headers, headerCut, headerValueBytes, headerValueSHA256); ok {
		n, err := strconv.Atoi(values[1])
		if err != nil {
			return DeadLetter{}, false
		}
		headers, d.Cut, d.ValueBytes, d.ValueSHA256 = rest, true, n, values[2]
	}
	headers, values, ok := cutTail(headers, headerReason, headerDetail, headerTopic, headerPartition, headerOffset, headerAt)
	if !ok {
		return DeadLetter{}, false
	}
	partition, err := strconv.ParseInt(values[3], 10, 32)
	if err != nil {
		return DeadLetter{}, false
	}
	if d.Offset, err = strconv.ParseInt(values[4], 10, 64); err != nil {
		return DeadLetter{}, false
	}
	if d.At, err = time.Parse(time.RFC3339Nano, values[5]); err != nil {
		return DeadLetter{}, false
	}
	d.Reason, d.Detail, d.Topic, d.Partition, d.Headers = schemas.Code(values[0]), values[1], values[2], int32(partition), headers
	for _, h := range headers {
		if h.Key == HeaderReplayedFrom {
			d.ReplayedFrom = string(h.Value)
		}
	}
	return d, true
}

// cutTail takes headers of the names, in that order, from the end.
func cutTail(headers []kgo.RecordHeader, names ...string) (rest []kgo.RecordHeader, values []string, ok bool) {
	at := len(headers) - len(names)
	if at < 0 {
		return nil, nil, false
	}
	for i, name := range names {
		if headers[at+i].Key != name {
			return nil, nil, false
		}
		values = append(values, string(headers[at+i].Value))
	}
	return headers[:at:at], values, true
}

// Inspector looks at records as a worker does before it knows any turn: whether they decode, fit, and stand where they belong.
type Inspector struct{ w *Worker }

// NewInspector makes an inspector. Of the configuration it needs Turns, Partitioner and MaxTurnBytes.
func NewInspector(cfg Config, dec Decoder) *Inspector {
	return &Inspector{&Worker{cfg: cfg.withDefaults(), deps: Deps{Decoder: dec}}}
}

// Inspect returns the record as a worker sees it, and why one would refuse it, or, when that is retryable, why it is not known.
// Event is nil if it cannot be decoded. The record may be changed afterwards.
func (i *Inspector) Inspect(ctx context.Context, r *kgo.Record) (*Record, *schemas.Error) {
	rec := newRecord(r)
	return rec, i.w.read(ctx, rec)
}

// WithoutReplay returns headers without the one of an earlier replay.
func WithoutReplay(headers []kgo.RecordHeader) []kgo.RecordHeader {
	out := make([]kgo.RecordHeader, 0, len(headers)+1)
	for _, h := range headers {
		if h.Key != HeaderReplayedFrom {
			out = append(out, kgo.RecordHeader{Key: h.Key, Value: bytes.Clone(h.Value)})
		}
	}
	return out
}
