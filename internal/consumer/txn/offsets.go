package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	busyBackoff      = 5 * time.Millisecond
	busyBackoffLimit = 50 * time.Millisecond
)

var errNoAnswer = errors.New("a broker did not answer for every partition")

// commitOffsets adds the offsets to the transaction, those that have not moved too: the group coordinator refuses them
// if our membership is no longer good, and that is the fence.
func (a *attempt) commitOffsets(ctx context.Context) (verdict, error) {
	if a.ring.cfg.TransactionVersion < 2 {
		if err := a.patiently(ctx, a.addOffsets); err != nil {
			return classify(err, a.subject(""))
		}
	}
	req := a.offsetsRequest()
	if err := a.patiently(ctx, func(ctx context.Context) error { return a.sendOffsets(ctx, req) }); err != nil {
		return classify(err, a.subject(a.cycle.Offsets[0].Topic))
	}
	return commitCertain, nil
}

// patiently repeats a request for as long as a coordinator asks for it; within one transaction that changes nothing.
func (a *attempt) patiently(ctx context.Context, request func(context.Context) error) error {
	b := Backoff{First: busyBackoff, Limit: busyBackoffLimit}
	for {
		err := request(ctx)
		if err == nil || ctx.Err() != nil || isKafka(err) && !isBusy(err) {
			return cause(ctx, err)
		}
		a.ring.metrics.retry(ctx, retryOffsets)
		if waitErr := b.Wait(ctx); waitErr != nil {
			return fmt.Errorf("%w: %w", waitErr, err)
		}
	}
}

// addOffsets is what a broker before transaction.version 2 wants to be told first.
func (a *attempt) addOffsets(ctx context.Context) error {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = a.slot.txID, a.producerID, a.producerEpoch
	req.Group = a.ring.cfg.Group
	resp, err := req.RequestWith(ctx, a.slot.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("request AddOffsetsToTxn: %w", err)
	}
	return nil
}

func (a *attempt) offsetsRequest() *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = a.slot.txID, a.producerID, a.producerEpoch
	req.Group = a.ring.cfg.Group
	req.MemberID, req.Generation, req.InstanceID = a.cycle.Group.MemberID, a.cycle.Group.Generation, a.cycle.Group.InstanceID
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	// From v6 on the topic goes by its id, before by its name.
	t.Topic, t.TopicID = a.cycle.Offsets[0].Topic, a.cycle.Offsets[0].TopicID
	t.Partitions = make([]kmsg.TxnOffsetCommitRequestTopicPartition, len(a.cycle.Offsets))
	for i := range a.cycle.Offsets {
		o, p := &a.cycle.Offsets[i], &t.Partitions[i]
		metadata := a.metadata[o.Partition]
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.Partition, o.Offset, o.LeaderEpoch, &metadata
	}
	req.Topics = append(req.Topics, t)
	return req
}

func (a *attempt) sendOffsets(ctx context.Context, req *kmsg.TxnOffsetCommitRequest) error {
	resp, err := req.RequestWith(ctx, a.slot.client)
	if err != nil {
		return fmt.Errorf("request TxnOffsetCommit: %w", err)
	}
	answers := 0
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, err)
			}
			answers++
		}
	}
	if answers != len(a.cycle.Offsets) {
		return errNoAnswer
	}
	return nil
}
