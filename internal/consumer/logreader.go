package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
)

// logReader reads partitions of one topic, one request at a time. It fetches by hand because the end of a restore is a position,
// not a record: what lies last may be markers, aborted records or nothing at all, which a consuming client does not show.
type logReader struct {
	cl    *kgo.Client
	topic Topic
	bytes int32
	// decompressor keeps its readers and buffers from batch to batch.
	decompressor kgo.Decompressor
	// retry counts a request that is made again.
	retry func(ctx context.Context)

	mu struct {
		sync.Mutex
		leaders map[int32]int32
		// epochs are the newest leader epochs heard of. They are kept while a partition has no leader.
		epochs map[int32]int32
	}
}

var (
	errOutOfRange = errors.New("the offset is out of range")
	errDamaged    = errors.New("the batch cannot be read")
	errTopicID    = errors.New("the topic was deleted or made again")
)

const (
	// changelogRetry and longestChangelogRetry bound the wait before a partition is read again that a broker did not answer for.
	changelogRetry        = 50 * time.Millisecond
	longestChangelogRetry = 2 * time.Second
)

func newLogReader(cl *kgo.Client, topic Topic, bytes int32, retry func(ctx context.Context)) *logReader {
	r := &logReader{cl: cl, topic: topic, bytes: bytes, decompressor: kgo.DefaultDecompressor(), retry: retry}
	r.mu.leaders, r.mu.epochs = make(map[int32]int32), make(map[int32]int32)
	return r
}

// refresh asks for the leaders of all partitions.
func (r *logReader) refresh(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = new(r.topic.Name)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return fmt.Errorf("find the leaders of %s: %w", r.topic.Name, err)
	}
	leaders, epochs := make(map[int32]int32), make(map[int32]int32)
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("find the leaders of %s: %w", r.topic.Name, err)
		}
		if t.TopicID != [16]byte{} && t.TopicID != r.topic.ID {
			return fmt.Errorf("find the leaders of %s: %w", r.topic.Name, errTopicID)
		}
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				leaders[p.Partition], epochs[p.Partition] = p.Leader, p.LeaderEpoch
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.leaders = leaders
	for partition, epoch := range epochs { // A broker that lags must not take an epoch back.
		if last, ok := r.mu.epochs[partition]; !ok || epoch > last {
			r.mu.epochs[partition] = epoch
		}
	}
	return nil
}

// leader returns the broker that leads a partition, as last heard of.
func (r *logReader) leader(partition int32) (broker int32, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	broker, ok = r.mu.leaders[partition]
	return broker, ok
}

// epoch returns the newest leader epoch heard of, -1 when there is none.
func (r *logReader) epoch(partition int32) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch, ok := r.mu.epochs[partition]; ok {
		return epoch
	}
	return -1
}

func (r *logReader) forget(partition int32) {
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
func (r *logReader) bounds(ctx context.Context, partition int32) (start, end int64, err error) {
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
	if len(resp.Topics) == 0 || len(resp.Topics[0].Partitions) == 0 {
		return 0, fmt.Errorf("list offsets of %s/%d: the broker did not answer for it", topic, partition)
	}
	answer := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return 0, fmt.Errorf("list offsets of %s/%d: %w", topic, partition, err)
	}
	return answer.Offset, nil
}

// epochEnd returns the end of a leader epoch, or of the largest one below it; -1 when the broker knows none.
func (r *logReader) epochEnd(ctx context.Context, partition, epoch int32) (int64, error) {
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
	if len(resp.Topics) == 0 || len(resp.Topics[0].Partitions) == 0 {
		return -1, nil
	}
	answer := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return -1, fmt.Errorf("check the leader epoch of %s/%d: %w", r.topic.Name, partition, err)
	}
	return answer.EndOffset, nil
}

// batch returns the bytes of the batch that holds an offset, as the broker has it.
func (r *logReader) batch(ctx context.Context, partition int32, offset int64) ([]byte, error) {
	for {
		rp, err := r.fetchRaw(ctx, partition, offset)
		if err != nil {
			return nil, err
		}
		if rp != nil && len(rp.RecordBatches) > batchLength+4 {
			n := int64(batchLength) + 4 + int64(binary.BigEndian.Uint32(rp.RecordBatches[batchLength:]))
			return rp.RecordBatches[:min(n, int64(len(rp.RecordBatches)))], nil
		}
		if err := sleep(ctx, changelogRetry); err != nil {
			return nil, err
		}
	}
}

// batchLength is where the length of what follows stands in a batch.
const batchLength = 8

// fetchRaw fetches from an offset, until ctx ends; nil when the broker throttles us.
func (r *logReader) fetchRaw(ctx context.Context, partition int32, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	again := txn.Backoff{First: changelogRetry, Limit: longestChangelogRetry, Spread: true}
	for {
		rp, err := r.attempt(ctx, partition, offset)
		if err == nil || ctx.Err() != nil || !mayPass(err) {
			return rp, err
		}
		r.retry(ctx)
		if err := again.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// attempt fetches once. After an error the leader is asked for again: it may have moved, or its connection was lost.
func (r *logReader) attempt(ctx context.Context, partition int32, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	rp, err := r.fetchOnce(ctx, partition, offset)
	switch {
	case err == nil:
		return rp, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, kerr.OffsetOutOfRange):
		err = errOutOfRange
	}
	r.forget(partition)
	return nil, fmt.Errorf("read %s/%d from %d: %w", r.topic.Name, partition, offset, err)
}

// mayPass reports whether an error of a fetch may pass by itself.
func mayPass(err error) bool { return !isFinal(err) && !isRefusal(err) }

// isFinal reports whether asking again is of no use.
func isFinal(err error) bool {
	switch {
	case isRefusal(err):
		return false
	case isGone(err), errors.Is(err, errOutOfRange), errors.Is(err, errDamaged):
		return true
	}
	return isBrokerError(err) && !passes(err)
}

// passes reports whether an error of a broker may be another one the next time. UNKNOWN_SERVER_ERROR is not among those that the
// protocol calls retriable, yet it says nothing of what was asked for: a broker answers so to whatever goes wrong within itself.
func passes(err error) bool {
	return kerr.IsRetriable(err) || errors.Is(err, kerr.UnknownServerError)
}

func isBrokerError(err error) bool {
	_, ok := errors.AsType[*kerr.Error](err)
	return ok
}

func (r *logReader) fetchOnce(ctx context.Context, partition int32, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	broker, ok := r.leader(partition)
	if !ok {
		if err := r.refresh(ctx); err != nil {
			return nil, err
		}
		if broker, ok = r.leader(partition); !ok {
			return nil, kerr.LeaderNotAvailable
		}
	}
	resp, err := r.cl.Broker(int(broker)).RetriableRequest(ctx, r.fetchRequest(partition, offset))
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	fetched, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("fetch: unexpected answer %T", resp)
	}
	if err := kerr.ErrorForCode(fetched.ErrorCode); err != nil {
		return nil, err
	}
	if len(fetched.Topics) == 0 || len(fetched.Topics[0].Partitions) == 0 {
		return nil, nil //nolint:nilnil // The broker throttles us: no answer, and no error.
	}
	rp := &fetched.Topics[0].Partitions[0]
	return rp, kerr.ErrorForCode(rp.ErrorCode)
}

func (r *logReader) fetchRequest(partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	// A broker answers the requests of a connection one after another: to wait for records of one partition would hold up all.
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, r.bytes
	req.IsolationLevel = 1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, r.bytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic.Name, r.topic.ID
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}
