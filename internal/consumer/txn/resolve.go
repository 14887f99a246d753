package txn

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	resolveBackoff      = 10 * time.Millisecond
	resolveBackoffLimit = time.Second
)

// finding is what the committed offsets say about a cycle of unknown outcome.
type finding struct {
	committed bool
	// lost are the partitions that somebody else has committed.
	lost []int32
	// second says that somebody else has our transactional ids.
	second bool
	// torn are partitions without a trace of a cycle that others prove committed.
	torn []int32
}

// resolve finds out what became of a cycle whose end was not acknowledged. Taking the transactional id anew makes the
// coordinator finish the transaction one way or the other; then the metadata of the offsets tells which. It gives up
// only with ctx, since nothing may be begun before the outcome is known.
func (a *attempt) resolve(ctx context.Context) (finding, error) {
	hooks := &a.ring.cfg.Hooks
	hooks.before(ctx, StepResolve)
	defer hooks.after(ctx, StepResolve)
	b := Backoff{First: resolveBackoff, Limit: resolveBackoffLimit}
	for tries := 1; ; tries++ {
		found, err := a.ask(ctx)
		if err == nil {
			return found, nil
		}
		// Markers take some milliseconds. The first line is for a second, each further one for twice as long as the last.
		if tries >= 8 && tries&(tries-1) == 0 {
			a.ring.cfg.Logger.WarnContext(ctx, "outcome of a commit cycle not known yet",
				slog.String("transactional_id", a.slot.txID), slog.Uint64("cid", a.cid), slog.Any("error", err))
		}
		a.ring.metrics.retry(ctx, retryResolve)
		if waitErr := b.Wait(ctx); waitErr != nil {
			return finding{}, fmt.Errorf("%w: %w: %w", ErrUndecided, waitErr, err)
		}
	}
}

func (a *attempt) ask(ctx context.Context) (finding, error) {
	if a.slot.client == nil {
		if err := a.slot.open(ctx); err != nil {
			return finding{}, err
		}
	}
	committed, err := a.fetchOffsets(ctx)
	if err != nil {
		return finding{}, err
	}
	return a.judge(committed), nil
}

// fetchOffsets reads the metadata of the cycle's partitions. A partition whose topic is gone has none.
func (a *attempt) fetchOffsets(ctx context.Context) (map[int32]string, error) {
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.TopicID = a.cycle.Offsets[0].Topic, a.cycle.Offsets[0].TopicID
	for i := range a.cycle.Offsets {
		topic.Partitions = append(topic.Partitions, a.cycle.Offsets[i].Partition)
	}
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group, group.Topics = a.ring.cfg.Group, []kmsg.OffsetFetchRequestGroupTopic{topic}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable, req.Groups = true, []kmsg.OffsetFetchRequestGroup{group}
	resp, err := req.RequestWith(ctx, a.slot.client)
	if err != nil {
		return nil, fmt.Errorf("request OffsetFetch: %w", cause(ctx, err))
	}
	committed := make(map[int32]string, len(a.cycle.Offsets))
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, fmt.Errorf("fetch offsets of group %s: %w", g.Group, err)
		}
		for _, t := range g.Topics {
			if err := readOffsets(t.Partitions, committed); err != nil {
				return nil, err
			}
		}
	}
	if len(committed) != len(a.cycle.Offsets) {
		return nil, fmt.Errorf("fetch offsets: %w", errNoAnswer)
	}
	return committed, nil
}

func readOffsets(partitions []kmsg.OffsetFetchResponseGroupTopicPartition, into map[int32]string) error {
	for _, p := range partitions {
		err := kerr.ErrorForCode(p.ErrorCode)
		switch {
		case isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID):
			into[p.Partition] = topicGone
		case err != nil:
			// UNSTABLE_OFFSET_COMMIT: a transaction, ours or another's, still holds an offset of the partition.
			return fmt.Errorf("fetch offset of partition %d: %w", p.Partition, err)
		case p.Metadata == nil:
			into[p.Partition] = ""
		default:
			into[p.Partition] = *p.Metadata
		}
	}
	return nil
}

// topicGone stands for the metadata of a partition that is no more. Nobody writes it, so it reads as another owner's.
const topicGone = "|"

// judge compares what is committed with what the cycle would have written.
//
// One partition that carries transactional id, incarnation and cid of the cycle proves it committed, since nothing but
// its own commit writes them; and then it is committed in every partition, because the offsets of one transaction
// become visible at once. Another partition may still show something else, if it was taken over in the meantime: its new
// owner could only read its offset after the commit, and has gone on from there. What can't be is a partition that still
// shows what was there before; it is called torn, and its owner must read its state again.
//
// Without such a proof, one partition that shows its baseline proves that the cycle was not committed. If every
// partition shows something new, it can't be known and does not matter: all have another owner.
func (a *attempt) judge(committed map[int32]string) finding {
	var f finding
	var unchanged []int32
	for i := range a.cycle.Offsets {
		o := &a.cycle.Offsets[i]
		now := committed[o.Partition]
		if now == a.metadata[o.Partition] {
			f.committed = true
			continue
		}
		if now == o.Baseline {
			unchanged = append(unchanged, o.Partition)
			continue
		}
		f.lost = append(f.lost, o.Partition)
		m, ok := ParseMetadata(now)
		if ok && m.Incarnation != a.ring.cfg.Incarnation && a.ring.owns(m.TxID) {
			f.second = true
		}
	}
	if f.committed && len(unchanged) > 0 {
		f.torn = unchanged
		f.lost = append(f.lost, unchanged...)
	}
	return f
}
