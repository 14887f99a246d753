package consumer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Headers of a dead letter, beside the record's own.
const (
	headerReason    = "lathe_reason"
	headerDetail    = "lathe_detail"
	headerTopic     = "lathe_topic"
	headerPartition = "lathe_partition"
	headerOffset    = "lathe_offset"
	headerAt        = "lathe_at"
	// The next three stand on a dead letter whose value was cut.
	headerValueBytes  = "lathe_value_bytes"
	headerValueSHA256 = "lathe_value_sha256"
	headerCut         = "lathe_cut"
)

const (
	// cutValue is how much of a value that does not fit is kept, cutPart how much of a key or of all headers.
	cutValue = 64 << 10
	cutPart  = 8 << 10
	// batchOverhead is what the broker counts beside the record: the batch's header, and room for our own headers.
	batchOverhead = 1 << 10
	// defaultMaxMessageBytes is what a topic takes when its limit is not known.
	defaultMaxMessageBytes = 1 << 20
	maxDetail              = 1 << 10
	// cutDetail is how much of the reason a shortened turn:rejected has.
	cutDetail = 256
)

// deadLetter is the owner of a dead letter's effect.
type deadLetter struct {
	rec    *Record
	reason *schemas.Error
	// cut is how much of the record is left out. When the broker refuses it, more is.
	cut letterCut
	// bare says that the turn:rejected beside it has no metadata and little detail.
	bare bool
}

type letterCut uint8

const (
	// cutAsNeeded keeps all of the record that the topic takes.
	cutAsNeeded letterCut = iota
	// cutShort keeps the beginning of the value.
	cutShort
	// cutAll keeps nothing of the record but where it stands, its size and its hash.
	cutAll
)

// deadLetter completes a record that cannot be accepted: it goes to the dead letter topic, with turn:rejected if it could be
// decoded, in the transaction that commits its offset.
func (p *partition) deadLetter(rec *Record, reason *schemas.Error) {
	if !p.writeLetter(&deadLetter{rec: rec, reason: reason}) {
		return // The partition is gone; its next owner sees the record again.
	}
	p.w.metrics.deadLetter(p.ctx, reason.Code)
	p.w.log.WarnContext(p.ctx, "record is a dead letter", p.attr(), slog.Int64("offset", rec.Offset), slog.Int("value_bytes", rec.ValueSize),
		slog.String("reason", string(reason.Code)), slog.Any("error", reason))
}

func (p *partition) writeLetter(l *deadLetter) bool {
	outputs := []statestore.Output{p.w.deadLetterOutput(l)}
	if l.rec.Event != nil {
		outputs = append(outputs, p.handler.Rejected(l.told())...)
	}
	return p.store.Add(&statestore.Effect{Outputs: outputs, Offset: l.rec.Offset, Urgent: true, Owner: l}) == nil
}

// told are record and reason as turn:rejected has them.
func (l *deadLetter) told() (*Record, *schemas.Error) {
	if !l.bare {
		return l.rec, l.reason
	}
	rec, event, reason := *l.rec, *l.rec.Event, *l.reason
	event.Metadata, rec.Event = nil, &event
	reason.Message, reason.Path, reason.Err = string(cut([]byte(l.reason.Detail()), cutDetail)), "", nil
	return &rec, &reason
}

// shorten puts a smaller dead letter in the place of one that the broker refuses. Without any smaller the partition is halted: its
// record must not be lost.
func (p *partition) shorten(l *deadLetter, r *Refusal) error {
	next := *l
	switch isLetter := r.Topic == p.w.cfg.DeadLetters.Name; {
	case isLetter && l.cut == cutAsNeeded:
		next.cut = cutShort
	case isLetter && l.cut == cutShort:
		next.cut = cutAll
	case !isLetter && !l.bare:
		next.bare = true
	default:
		return fmt.Errorf("dead letter of the record at offset %d: %w", l.rec.Offset, r.Fault())
	}
	if len(p.store.Drop(l)) > 0 {
		p.writeLetter(&next)
	}
	return nil
}

// deadLetterOutput is the record as it came, with the reason in headers; or, if the topic would not take that, its beginning.
func (w *Worker) deadLetterOutput(l *deadLetter) statestore.Output {
	rec := l.rec
	limit := w.cfg.DeadLetters.MaxMessageBytes
	if limit <= 0 {
		limit = defaultMaxMessageBytes
	}
	out := statestore.Output{Topic: w.cfg.DeadLetters.Name, Key: rec.Key, Value: rec.value, Partition: rec.Partition % w.cfg.DeadLetters.Partitions}
	if len(rec.Key) > 0 {
		out.Partition = -1
	}
	kept, value := cutPart, min(cutValue, limit/2)
	if l.cut == cutAll {
		kept, value = 0, 0
	}
	own := w.reasonHeaders(rec, l.reason)
	if l.cut > cutAsNeeded || rec.batch || recordSize(rec.Key, rec.value, rec.Headers)+headersSize(own)+batchOverhead > limit {
		own = append(own, cutHeaders(rec)...)
		out.Key, out.Value = cut(rec.Key, kept), cut(rec.value, value)
	}
	if l.cut < cutAll && (len(own) == reasonCount || headersSize(rec.Headers) <= cutPart) {
		out.Headers = make([]statestore.Header, 0, len(rec.Headers)+len(own))
		for _, h := range rec.Headers {
			out.Headers = append(out.Headers, statestore.Header(h))
		}
	}
	for _, h := range own {
		out.Headers = append(out.Headers, statestore.Header(h))
	}
	return out
}

const reasonCount = 6

func (w *Worker) reasonHeaders(rec *Record, reason *schemas.Error) []schemas.Header {
	return []schemas.Header{
		{Key: headerReason, Value: []byte(reason.Code)},
		{Key: headerDetail, Value: cut([]byte(reason.Detail()), maxDetail)},
		{Key: headerTopic, Value: []byte(rec.Topic)},
		{Key: headerPartition, Value: strconv.AppendInt(nil, int64(rec.Partition), 10)},
		{Key: headerOffset, Value: strconv.AppendInt(nil, rec.Offset, 10)},
		{Key: headerAt, Value: w.deps.Now().UTC().AppendFormat(nil, time.RFC3339Nano)},
	}
}

func cutHeaders(rec *Record) []schemas.Header {
	sum := sha256.Sum256(rec.value)
	return []schemas.Header{
		{Key: headerCut, Value: []byte("true")},
		{Key: headerValueBytes, Value: strconv.AppendInt(nil, int64(len(rec.value)), 10)},
		{Key: headerValueSHA256, Value: hex.AppendEncode(nil, sum[:])},
	}
}

// cut keeps the first n bytes, and nil as nil.
func cut(b []byte, n int) []byte { return b[:min(len(b), n):min(len(b), n)] }

func recordSize(key, value []byte, headers []schemas.Header) int {
	return len(key) + len(value) + headersSize(headers) + 40
}

func headersSize(headers []schemas.Header) int {
	n := 0
	for _, h := range headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n
}
