package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

const (
	warmPartitions = 12
	warmSlots      = 3
	warmRecords    = 20 // per partition and transaction
	warmValueBytes = 500
)

// Warm drives the brokers for d with transactions that produce and commit offsets, and a reader: a cold JVM is several
// times slower than a warm one, and a measurement must not see that.
func (c *Cluster) Warm(ctx context.Context, d time.Duration) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.DisableClientMetrics())
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	defer cl.Close()
	topic := "lathe-warm-up-" + rand.Text()[:8]
	id, err := createTopic(ctx, cl, topic, warmPartitions, nil)
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	work, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	group, work := errgroup.WithContext(work)
	group.Go(func() error { return c.warmReader(work, topic) })
	for slot := range warmSlots {
		w := warmWriter{topic: topic, topicID: id, id: fmt.Sprintf("%s-%d", topic, slot)}
		group.Go(func() error { return c.warmWriter(work, w) })
	}
	err = group.Wait()
	if _, deleteErr := kadm.NewClient(cl).DeleteTopic(ctx, topic); deleteErr != nil {
		err = errors.Join(err, deleteErr)
	}
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return nil
}

func (c *Cluster) warmReader(ctx context.Context, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.DisableClientMetrics(), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return fmt.Errorf("make the reader: %w", err)
	}
	defer cl.Close()
	for ctx.Err() == nil {
		cl.PollFetches(ctx)
	}
	return nil
}

// warmWriter is one transactional producer of the warm-up; its id is that of its transactions and of its group.
type warmWriter struct {
	topic   string
	topicID kadm.TopicID
	id      string
}

func (c *Cluster) warmWriter(ctx context.Context, w warmWriter) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.DisableClientMetrics(), kgo.TransactionalID(w.id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		return fmt.Errorf("make a writer: %w", err)
	}
	defer cl.Close()
	for ctx.Err() == nil {
		// The end of the warm-up does not break off a transaction: an open one would block readers.
		if err := w.transaction(context.WithoutCancel(ctx), cl); err != nil {
			return fmt.Errorf("run a transaction: %w", err)
		}
	}
	return nil
}

func (w warmWriter) transaction(ctx context.Context, cl *kgo.Client) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	value := make([]byte, warmValueBytes)
	records := make([]*kgo.Record, 0, warmPartitions*warmRecords)
	for range warmRecords {
		for p := range int32(warmPartitions) {
			records = append(records, &kgo.Record{Topic: w.topic, Partition: p, Value: value})
		}
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	if err := w.commitOffset(ctx, cl); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

// commitOffset commits an offset as no member of a group, which a broker takes unfenced.
func (w warmWriter) commitOffset(ctx context.Context, cl *kgo.Client) error {
	producer, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = w.id, producer, epoch, w.id
	added, err := add.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = w.id, producer, epoch, w.id
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = w.topic, w.topicID
	t.Partitions = append(t.Partitions, kmsg.NewTxnOffsetCommitRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}
