package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Why a step gave up, besides what the brokers say.
var (
	errFlushDeadline   = errors.New("the records were not taken in time")
	errOffsetsDeadline = errors.New("the offsets were not taken in time")
	errNoOffset        = errors.New("a broker did not tell the offset of a changelog record")
)

// attempt is one cycle on one slot.
type attempt struct {
	ring  *Ring
	slot  *slot
	cycle *Cycle
	cid   uint64
	begun time.Time

	producerID    int64
	producerEpoch int16
	// batch are the records sent last; taken says that a broker has taken some before.
	batch *batch
	sent  int
	taken bool

	metadata      map[int32]string
	changelogNext map[int32]int64
}

// run takes the attempt from begin to end. The error says why it was not committed, or why that is unknown.
func (a *attempt) run(ctx context.Context) (verdict, error) {
	cfg := &a.ring.cfg
	offsetsCtx, cancel := context.WithTimeoutCause(ctx, cfg.offsetsLimit(), errOffsetsDeadline)
	defer cancel()
	flushCtx, cancel := context.WithTimeoutCause(offsetsCtx, cfg.flushLimit(), errFlushDeadline)
	defer cancel()

	if v, err := a.step(flushCtx, StepBegin, a.begin); err != nil {
		return v, err
	}
	if v, err := a.step(flushCtx, StepAnnounce, a.announce); err != nil {
		return v, err
	}
	if v, err := a.step(flushCtx, StepProduce, a.produce); err != nil {
		return v, err
	}
	if v, err := a.step(flushCtx, StepFlush, a.flush); err != nil {
		return v, err
	}
	if v, err := a.step(offsetsCtx, StepOffsets, a.commitOffsets); err != nil {
		return v, err
	}
	if v, err := a.step(ctx, StepCheck, a.check); err != nil {
		return v, err
	}
	return a.step(ctx, StepEnd, a.end)
}

// step does one step. Without an error the verdict says nothing until the last.
func (a *attempt) step(ctx context.Context, s Step, do func(context.Context) (verdict, error)) (verdict, error) {
	hooks := &a.ring.cfg.Hooks
	hooks.before(ctx, s)
	v, err := do(ctx)
	hooks.after(ctx, s)
	if err != nil {
		return v, fmt.Errorf("%s: %w", s, err)
	}
	return commitCertain, nil
}

// begin learns the producer id and its epoch, which rises with every transaction since transaction.version 2. It comes
// before BeginTransaction, which would wait for a lost id without a deadline.
func (a *attempt) begin(ctx context.Context) (verdict, error) {
	var err error
	if a.slot.client == nil {
		if err = a.slot.open(ctx); err != nil {
			return a.unusable(err)
		}
	}
	if a.producerID, a.producerEpoch, err = a.slot.client.ProducerID(ctx); err != nil {
		return a.unusable(cause(ctx, err))
	}
	if err = a.slot.client.BeginTransaction(); err != nil {
		return a.unusable(err)
	}
	return commitCertain, nil
}

// unusable is an error of begin: nothing has been begun, and the client is of no use whatever it was.
func (a *attempt) unusable(err error) (verdict, error) {
	_, err = classify(err, a.subject(""))
	return abortReplace, err
}

// produce hands all records to the client. In rounds, when a topic's batches are limited: each but the last is flushed here.
func (a *attempt) produce(ctx context.Context) (verdict, error) {
	rounds := a.ring.limits.rounds(a.cycle.Records)
	for i, records := range rounds {
		if i > 0 {
			if v, err := a.settled(ctx); err != nil {
				return v, err
			}
		}
		a.batch, a.sent = newBatch(len(records)), len(records)
		for _, r := range records {
			a.slot.client.Produce(ctx, r, a.batch.promise)
		}
	}
	return commitCertain, nil
}

// flush sends the records and waits until all are taken. The transaction must not go on if one was not: the client
// would commit the rest.
func (a *attempt) flush(ctx context.Context) (verdict, error) {
	if v, err := a.settled(ctx); err != nil {
		return v, err
	}
	return a.plan()
}

// settled flushes what was handed to the client last, and waits until all of it is taken.
func (a *attempt) settled(ctx context.Context) (verdict, error) {
	if err := a.slot.client.Flush(ctx); err != nil {
		err = cause(ctx, err)
		return classify(err, a.subject(""))
	}
	record, err := a.batch.wait(ctx)
	switch {
	case record == nil && err != nil:
		return classify(err, a.subject(""))
	case err != nil:
		v, err := classify(fmt.Errorf("topic %s, partition %d: %w", record.Topic, record.Partition, err), a.subject(record.Topic))
		if errors.Is(err, ErrTooLarge) {
			err = a.blame(err)
		}
		return v, err
	}
	a.taken = a.taken || a.sent > 0
	return commitCertain, nil
}

// blame says which records are refused, if that is certain.
func (a *attempt) blame(err error) error {
	guilty := a.ring.limits.blame(a.batch.refusals())
	if len(guilty) == 0 {
		return fmt.Errorf("%w: %w", ErrBatchRefused, err)
	}
	refused := &RecordError{Err: err}
	for i, r := range a.cycle.Records {
		if slices.Contains(guilty, r) {
			refused.Indexes = append(refused.Indexes, i)
		}
	}
	return refused
}

// plan fixes what the offsets will carry: the changelog positions are known only now. A position that goes back says that the
// log was replaced or has lost its end; a producer that has never written to it before can't know that it is another topic.
func (a *attempt) plan() (verdict, error) {
	var cut *LogCutError
	a.changelogNext = make(map[int32]int64, len(a.cycle.Offsets))
	a.metadata = make(map[int32]string, len(a.cycle.Offsets))
	for i := range a.cycle.Offsets {
		a.changelogNext[a.cycle.Offsets[i].Partition] = a.cycle.Offsets[i].ChangelogNext
	}
	for _, r := range a.cycle.Records {
		if r.Topic != a.ring.cfg.Changelog {
			continue
		}
		if r.Offset < 0 {
			return abortClean, fmt.Errorf("%w: %w", ErrTransient, errNoOffset)
		}
		next, ours := a.changelogNext[r.Partition]
		switch {
		case !ours:
		case r.Offset < next:
			cut = cut.add(r.Partition, r.Offset, next)
		default:
			a.changelogNext[r.Partition] = r.Offset + 1
		}
	}
	if cut != nil {
		return abortClean, cut
	}
	for i := range a.cycle.Offsets {
		o := &a.cycle.Offsets[i]
		m := Metadata{
			TxID: a.slot.txID, Incarnation: a.ring.cfg.Incarnation, CID: a.cid,
			ChangelogNext: a.changelogNext[o.Partition], ChangelogFrom: o.ChangelogFrom, Clean: o.Clean,
		}
		a.metadata[o.Partition] = m.String()
	}
	return commitCertain, nil
}

func (a *attempt) check(ctx context.Context) (verdict, error) {
	if ctx.Err() != nil {
		return abortClean, context.Cause(ctx)
	}
	if a.cycle.Check == nil {
		return commitCertain, nil
	}
	if err := a.cycle.Check(); err != nil {
		return abortClean, fmt.Errorf("%w: %w", ErrStale, err)
	}
	return commitCertain, nil
}

// end commits. From here the caller can't break it off: an answer that is not waited for is an unknown outcome.
func (a *attempt) end(ctx context.Context) (verdict, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.ring.cfg.Timeout)
	defer cancel()
	err := a.slot.client.EndTransaction(ctx, kgo.TryCommit)
	switch {
	case err == nil:
		return commitCertain, nil
	case isAny(err, kerr.OperationNotAttempted, kerr.TransactionAbortable):
		v, err := classify(err, a.subject(""))
		if v != abortClean {
			v = abortClean // the client has not asked; whether it is still of use, the abort will tell
		}
		return v, err
	}
	return commitUnknown, fmt.Errorf("%w: %w", ErrTransient, err)
}

// abort ends the transaction. It reports false if the slot has to be replaced.
func (a *attempt) abort(ctx context.Context) (bool, error) {
	// The client ends a transaction only if a broker has taken a record of it, but the broker may have one that was merely
	// announced: the next commit of this slot would find itself in it.
	if a.batch == nil || !a.taken && !a.batch.acked(a.sent) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.ring.cfg.Timeout)
	defer cancel()
	if err := a.slot.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return false, fmt.Errorf("abort the transaction: %w", err)
	}
	// After some errors the client aborts by taking its id anew, which it puts off until it is needed.
	if _, _, err := a.slot.client.ProducerID(ctx); err != nil {
		return false, fmt.Errorf("take the transactional id anew: %w", err)
	}
	return true, nil
}

func (a *attempt) subject(topic string) subject {
	return subject{topic: topic, txID: a.slot.txID, group: a.ring.cfg.Group}
}
