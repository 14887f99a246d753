package consumer

import (
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
)

// A record that the broker will not take, too large after all, stops only what it belongs to. The cycle is aborted; then, between
// two cycles, so that nothing of it can still be committed,
//
//   - a journal record that was joined of several facts is split,
//   - a dead letter is made anew with less of the record in it,
//   - the handler ends the turn that the record belongs to without it, and does again what later turns of its session have read.
//
// What is left halts its partition.

// refused mends what the refused records of an aborted cycle come from.
func (c *committer) refused(ctx context.Context, shares []*share, err error) {
	rec, ok := errors.AsType[*txn.RecordError](err)
	if !ok {
		c.w.log.WarnContext(ctx, "the broker refuses a batch of records; it is tried again in smaller ones", slog.Any("error", err))
		return
	}
	var list []refusedRecord
	for _, i := range rec.Indexes {
		if r, ok := locate(shares, i); ok {
			r.Err = rec.Err
			r.find() // Before any effect is dropped, while the batches still say what is whose.
			list = append(list, r)
		}
	}
	for i := range list {
		list[i].share.p.refused(ctx, &list[i])
	}
}

// refusedRecord is a refusal and where it was in its cycle.
type refusedRecord struct {
	Refusal

	share *share
	// record is its index in the changelog records of the batch; -1 for an output.
	record int
}

// locate undoes the order that committer.records has: all changelog records, then all outputs.
func locate(shares []*share, index int) (refusedRecord, bool) {
	for _, s := range shares {
		if index < len(s.batch.Records) {
			r := &s.batch.Records[index]
			return refusedRecord{share: s, record: index, Refusal: Refusal{Key: []byte(r.Key), Size: len(r.Key) + len(r.Value)}}, true
		}
		index -= len(s.batch.Records)
	}
	for _, s := range shares {
		if index < len(s.batch.Outputs) {
			o := s.batch.Outputs[index]
			return refusedRecord{share: s, record: -1, Refusal: Refusal{Topic: o.Topic, Key: o.Key, Output: o, Size: outputSize(o)}}, true
		}
		index -= len(s.batch.Outputs)
	}
	return refusedRecord{}, false
}

// find fills in what only the partition knows: whose the record is.
func (r *refusedRecord) find() {
	if r.Output != nil {
		r.Effect = r.share.batch.EffectOfOutput(r.Output)
		return
	}
	r.Topic = r.share.p.w.cfg.Changelog.Name
	r.Effect = r.share.batch.EffectOfRecord(r.record)
}

func outputSize(o *statestore.Output) int {
	n := len(o.Key) + len(o.Value)
	for _, h := range o.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

func (p *partition) refused(ctx context.Context, r *refusedRecord) {
	if p.is().ended() {
		return
	}
	p.w.metrics.refused.Add(ctx, 1, metric.WithAttributes(attribute.String("topic", r.Topic)))
	p.w.log.WarnContext(ctx, "the broker refuses a record", p.attr(), slog.String("record_topic", r.Topic), slog.String("key", string(r.Key)),
		slog.Int("bytes", r.Size), slog.Any("error", r.Err))
	if err := p.mend(ctx, r); err != nil {
		p.halt(ctx, err)
	}
	p.freed()
}

func (p *partition) mend(ctx context.Context, r *refusedRecord) error {
	if r.record >= 0 && p.store.Split(r.share.batch, r.record) {
		return nil
	}
	if r.Effect == nil {
		return r.Fault()
	}
	switch owner := r.Effect.Owner.(type) {
	case *deadLetter:
		return p.shorten(owner, &r.Refusal)
	case Owner:
		return p.redo(ctx, owner.LaneKey(), &r.Refusal)
	}
	return r.Fault()
}

// redo lets the handler do without the refused record. Meanwhile the lane begins nothing: what it has next may build upon what the
// handler drops.
func (p *partition) redo(ctx context.Context, lane string, r *Refusal) error {
	mender, ok := p.handler.(Refuser)
	if !ok {
		return r.Fault()
	}
	p.holdLane(lane)
	tasks, err := mender.Refused(ctx, r)
	p.resumeLane(lane, tasks)
	return err
}
