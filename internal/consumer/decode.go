package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// newRecord copies what it keeps: the records of one fetch share their memory, and a slow turn must not hold all of it.
func newRecord(r *kgo.Record) *Record {
	rec := &Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Key: bytes.Clone(r.Key), ValueSize: len(r.Value), value: bytes.Clone(r.Value),
	}
	if len(r.Headers) > 0 {
		rec.Headers = make([]schemas.Header, len(r.Headers))
		for i, h := range r.Headers {
			rec.Headers[i] = schemas.Header{Key: h.Key, Value: bytes.Clone(h.Value)}
		}
	}
	return rec
}

// read decodes the record and checks that it is where it belongs. What it returns is why the record is refused, or, when its
// class is retryable, why that is not known yet.
func (w *Worker) read(ctx context.Context, rec *Record) *schemas.Error {
	if rec.value == nil {
		return schemas.Errorf(schemas.CodeTombstone, "the record has no value; to cancel a turn send an event of type cancel")
	}
	if n := recordSize(rec.Key, rec.value, rec.Headers); n > w.cfg.MaxTurnBytes {
		return schemas.Errorf(schemas.CodeTooLarge, "the record has %d bytes, the limit is %d", n, w.cfg.MaxTurnBytes)
	}
	decoded, err := w.guardedDecode(ctx, rec)
	if err != nil {
		if decoded != nil { // What is wrong is not who asks: the refusal can be told to them.
			rec.Event = decoded.Event
		}
		return refusal(err)
	}
	rec.Event, rec.Hash, rec.Lone, rec.Encoding = decoded.Event, decoded.Hash, decoded.Lone, decoded.Encoding
	return w.misplaced(rec)
}

// guardedDecode makes a panic of the decoder a fault of the record.
func (w *Worker) guardedDecode(ctx context.Context, rec *Record) (d *schemas.Decoded, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &schemas.Error{Code: schemas.CodeUndecodable, Message: "the record makes the decoder panic", Err: fmt.Errorf("panic: %v", v)}
		}
	}()
	return w.deps.Decoder.Decode(ctx, rec.value, rec.Headers)
}

// refusal makes every error of the decoder one that a dead letter can name.
func refusal(err error) *schemas.Error {
	e, ok := errors.AsType[*schemas.Error](err)
	switch {
	case !ok:
		return &schemas.Error{Code: schemas.CodeUndecodable, Message: "the record cannot be decoded", Err: err}
	case e.Class == schemas.ClassRetryable || e.Code.DeadLetter():
		return e
	}
	return &schemas.Error{Code: schemas.CodeUndecodable, Message: e.Detail(), Err: err}
}

// misplaced checks key and partition: anywhere else the turn would run out of order with its session, without a sign.
func (w *Worker) misplaced(rec *Record) *schemas.Error {
	if rec.Key == nil {
		return schemas.Errorf(schemas.CodeKeyMismatch, "the record has no key; the key must be the session_id %q", rec.Event.SessionID)
	}
	if w.cfg.Partitioner == PartitionerAny {
		return nil
	}
	if string(rec.Key) != rec.Event.SessionID {
		return schemas.Errorf(schemas.CodeKeyMismatch, "the key must be the session_id %q", rec.Event.SessionID)
	}
	if w.cfg.Partitioner.wrong(rec.Key, rec.Partition, w.cfg.Turns.Partitions) {
		return schemas.Errorf(schemas.CodePartitionMismatch,
			"the key does not belong on partition %d of %d by %s; set the producer's partitioner (librdkafka: partitioner=murmur2_random), or LATHE_TURNS_PARTITIONER",
			rec.Partition, w.cfg.Turns.Partitions, w.cfg.Partitioner)
	}
	return nil
}
