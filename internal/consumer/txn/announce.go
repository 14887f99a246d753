package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// announceBackoff is short because what is waited for is: the markers of this slot's last transaction. Should they take longer, so
// does the wait.
const (
	announceBackoff      = time.Millisecond
	announceBackoffLimit = 20 * time.Millisecond
)

// announce adds all partitions of the cycle to the transaction in one request before any is written. Since
// transaction.version 2 each leader adds its own when it is written to; several brokers doing so at once get into each
// other's way at the coordinator, and each collision costs 20 to 100 ms on the server.
//
// It is an optimisation: only an error that ends the transaction is returned, any other is left to the produce request,
// which will meet it too.
func (a *attempt) announce(ctx context.Context) (verdict, error) {
	r := a.ring
	if !r.announcing {
		return commitCertain, nil
	}
	r.parts.of(a.cycle.Records)
	if !r.parts.manyLeaders(leaderOf(a.slot.client)) {
		return commitCertain, nil
	}
	b := Backoff{First: announceBackoff, Limit: announceBackoffLimit}
	for {
		err := a.addPartitions(ctx)
		if errors.Is(err, kerr.ConcurrentTransactions) {
			r.metrics.retry(ctx, retryAnnounce)
			if err = b.Wait(ctx); err == nil {
				continue
			}
		}
		switch {
		case err == nil:
			return commitCertain, nil
		case ctx.Err() != nil:
			return classify(cause(ctx, err), a.subject(""))
		case isFence(err), isAny(err, kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.TransactionAbortable):
			return classify(err, a.subject(""))
		case !isAny(err, kerr.UnsupportedVersion, kerr.InvalidRequest, kerr.ClusterAuthorizationFailed):
			return commitCertain, nil
		}
		r.announcing = false
		r.cfg.Logger.WarnContext(ctx, "partitions can't be announced, commits will be slower", slog.Any("error", err))
		return commitCertain, nil
	}
}

func (a *attempt) addPartitions(ctx context.Context) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = a.slot.txID, a.producerID, a.producerEpoch
	a.ring.parts.each(func(topic string, list []int32) {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, list
		req.Topics = append(req.Topics, t)
	})
	resp, err := req.RequestWith(ctx, a.slot.client)
	if err != nil {
		return fmt.Errorf("request AddPartitionsToTxn: %w", err)
	}
	// One partition that can't be added keeps all others out: they answer OPERATION_NOT_ATTEMPTED, which says nothing.
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !errors.Is(err, kerr.OperationNotAttempted) {
				return fmt.Errorf("topic %s, partition %d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return nil
}

func leaderOf(client *kgo.Client) func(string, int32) int32 {
	return func(topic string, partition int32) int32 {
		leader, _, err := client.PartitionLeader(topic, partition)
		if err != nil {
			return -1
		}
		return leader
	}
}

func isKafka(err error) bool {
	_, ok := errors.AsType[*kerr.Error](err)
	return ok
}
