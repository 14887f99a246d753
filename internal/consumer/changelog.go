package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/statestore"
)

// changelogReader reads the changelog, one partition and one request at a time. It fetches by hand because the end of a restore
// is a position, not a record: what lies last may be markers, aborted records or nothing at all, which a consuming client does
// not show.
type changelogReader struct {
	cl    *kgo.Client
	topic Topic
	bytes int32

	mu struct {
		sync.Mutex
		leaders map[int32]leader
	}
}

type leader struct {
	broker int32
	epoch  int32
}

var (
	errOutOfRange  = errors.New("the offset is out of range")
	errChangelogID = errors.New("the changelog topic was deleted or made again")
)

const (
	changelogWait  = 100 * time.Millisecond
	changelogRetry = 50 * time.Millisecond
)

func newChangelogReader(cl *kgo.Client, topic Topic, bytes int32) *changelogReader {
	r := &changelogReader{cl: cl, topic: topic, bytes: bytes}
	r.mu.leaders = make(map[int32]leader)
	return r
}

// refresh asks for the leaders of all partitions.
func (r *changelogReader) refresh(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(r.topic.Name)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return fmt.Errorf("find the leaders of %s: %w", r.topic.Name, err)
	}
	leaders := make(map[int32]leader)
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("find the leaders of %s: %w", r.topic.Name, err)
		}
		if t.TopicID != [16]byte{} && t.TopicID != r.topic.ID {
			return fmt.Errorf("find the leaders of %s: %w", r.topic.Name, errChangelogID)
		}
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				leaders[p.Partition] = leader{broker: p.Leader, epoch: p.LeaderEpoch}
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.leaders = leaders
	return nil
}

// known returns the leader last heard of; its epoch is -1 when there is none.
func (r *changelogReader) known(partition int32) (leader, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.mu.leaders[partition]
	if !ok {
		l.epoch = -1
	}
	return l, ok
}

func (r *changelogReader) forget(partition int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.leaders, partition)
}

// Timestamps of ListOffsets.
const (
	latestOffset   int64 = -1
	earliestOffset int64 = -2
)

// bounds returns the log start and the high watermark, uncommitted records included.
func (r *changelogReader) bounds(ctx context.Context, partition int32) (start, end int64, err error) {
	if start, err = listOffset(ctx, r.cl, r.topic.Name, partition, earliestOffset); err != nil {
		return 0, 0, err
	}
	end, err = listOffset(ctx, r.cl, r.topic.Name, partition, latestOffset)
	return start, end, err
}

// listOffset asks the leader of one partition. kgo finds it and retries while it moves.
func listOffset(ctx context.Context, cl *kgo.Client, topic string, partition int32, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, fmt.Errorf("list offsets of %s/%d: %w", topic, partition, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, fmt.Errorf("list offsets of %s/%d: %w", topic, partition, err)
			}
			return p.Offset, nil
		}
	}
	return 0, fmt.Errorf("list offsets of %s/%d: the broker did not answer for it", topic, partition)
}

// epochEnd returns the end of a leader epoch, or of the largest one below it; -1 when the broker knows none.
func (r *changelogReader) epochEnd(ctx context.Context, partition, epoch int32) (int64, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.CurrentLeaderEpoch = partition, epoch, -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = r.topic.Name
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return -1, fmt.Errorf("check the leader epoch of %s/%d: %w", r.topic.Name, partition, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return -1, fmt.Errorf("check the leader epoch of %s/%d: %w", r.topic.Name, partition, err)
			}
			return p.EndOffset, nil
		}
	}
	return -1, nil
}

// chunk is the answer to one fetch.
type chunk struct {
	records []statestore.Record
	// next is the offset to read on from. epoch is the leader epoch of the last record.
	next  int64
	epoch int32
	// empty says that there was nothing at all, and stable is the offset up to which every transaction is decided.
	empty  bool
	stable int64
}

// fetch reads committed records from an offset on. What may pass is retried until ctx ends.
func (r *changelogReader) fetch(ctx context.Context, partition int32, offset int64) (chunk, error) {
	for {
		c, err := r.fetchOnce(ctx, partition, offset)
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return chunk{}, context.Cause(ctx)
		case errors.Is(err, kerr.OffsetOutOfRange):
			return chunk{}, fmt.Errorf("read %s/%d from %d: %w", r.topic.Name, partition, offset, errOutOfRange)
		case errors.Is(err, errChangelogID), errors.Is(err, kerr.UnknownTopicID), isRefusal(err):
			return chunk{}, fmt.Errorf("read %s/%d from %d: %w", r.topic.Name, partition, offset, err)
		case isBrokerError(err) && !kerr.IsRetriable(err):
			return chunk{}, fmt.Errorf("read %s/%d from %d: %w", r.topic.Name, partition, offset, err)
		}
		r.forget(partition) // A leader that has moved, a connection that was lost: ask again.
		if err := sleep(ctx, changelogRetry); err != nil {
			return chunk{}, err
		}
	}
}

func isBrokerError(err error) bool {
	_, ok := errors.AsType[*kerr.Error](err)
	return ok
}

func (r *changelogReader) fetchOnce(ctx context.Context, partition int32, offset int64) (chunk, error) {
	l, ok := r.known(partition)
	if !ok {
		if err := r.refresh(ctx); err != nil {
			return chunk{}, err
		}
		if l, ok = r.known(partition); !ok {
			return chunk{}, kerr.LeaderNotAvailable
		}
	}
	resp, err := r.cl.Broker(int(l.broker)).RetriableRequest(ctx, r.fetchRequest(partition, offset))
	if err != nil {
		return chunk{}, fmt.Errorf("fetch: %w", err)
	}
	fetched, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return chunk{}, fmt.Errorf("fetch: unexpected answer %T", resp)
	}
	if err := kerr.ErrorForCode(fetched.ErrorCode); err != nil {
		return chunk{}, err
	}
	for i := range fetched.Topics {
		for j := range fetched.Topics[i].Partitions {
			return r.read(&fetched.Topics[i].Partitions[j], offset, l.epoch)
		}
	}
	return chunk{next: offset, epoch: -1, stable: -1}, nil // The broker throttles us.
}

func (r *changelogReader) fetchRequest(partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(changelogWait.Milliseconds())
	req.MinBytes, req.MaxBytes = 1, r.bytes
	req.IsolationLevel = 1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, r.bytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic.Name, r.topic.ID
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (r *changelogReader) read(rp *kmsg.FetchResponseTopicPartition, offset int64, epoch int32) (chunk, error) {
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		return chunk{}, err
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: offset, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic.Name, Partition: rp.Partition,
	}, rp, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		return chunk{}, fmt.Errorf("decode the batch at %d: %w", next, fp.Err)
	}
	c := chunk{next: next, epoch: epoch, empty: len(rp.RecordBatches) == 0, stable: rp.LastStableOffset}
	if len(fp.Records) > 0 {
		c.records = make([]statestore.Record, len(fp.Records))
		for i, rec := range fp.Records {
			c.records[i] = statestore.Record{Key: string(rec.Key), Value: rec.Value}
		}
		c.epoch = fp.Records[len(fp.Records)-1].LeaderEpoch
	}
	return c, nil
}
