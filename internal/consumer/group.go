package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
)

// join makes the group's client, which joins at once. What a client of an earlier membership still says counts no more.
func (w *Worker) join(work context.Context) (*kgo.Client, error) {
	var p *pulse
	p = newPulse(w.rebalanceTimeout(), func(err error) {
		if w.pulse.Load() == p {
			w.groupFault(work, err)
		}
	})
	w.pulse.Store(p)
	w.mu.Lock()
	w.mu.joined = false
	w.mu.Unlock()
	g, err := w.newClient(w.groupOptions(work)...)
	if err != nil {
		return nil, fmt.Errorf("join group %s: %w", w.cfg.Group, err)
	}
	w.client.Store(g)
	return g, nil
}

// rebalanceTimeout leaves a revoked partition its whole drain.
func (w *Worker) rebalanceTimeout() time.Duration {
	return max(time.Minute, w.cfg.DrainBudget+w.cfg.CommitBudget+closeGrace+10*time.Second)
}

func (w *Worker) groupOptions(work context.Context) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(w.cfg.Group),
		kgo.ConsumeTopics(w.cfg.Turns.Name),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(w.cfg.FetchMaxWait),
		kgo.MetadataMinAge(fetchMetadataMinAge),
		kgo.FetchMaxBytes(w.cfg.FetchMaxBytes),
		kgo.MaxDecompressBatchBytes(w.cfg.MaxDecompressBytes),
		kgo.WithDecompressor(decompressor(w.changelog.cl)),
		kgo.SessionTimeout(w.cfg.SessionTimeout),
		kgo.HeartbeatInterval(w.cfg.HeartbeatInterval),
		kgo.RebalanceTimeout(w.rebalanceTimeout()),
		kgo.OnPartitionsAssigned(func(_ context.Context, g *kgo.Client, ps map[string][]int32) {
			w.assigned(work, g, ps[w.cfg.Turns.Name])
		}),
		kgo.OnOffsetsFetched(func(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
			w.offsetsFetched(resp)
			return nil
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, g *kgo.Client, ps map[string][]int32) {
			w.revoked(work, g, ps[w.cfg.Turns.Name])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, g *kgo.Client, ps map[string][]int32) { w.lost(work, g, ps[w.cfg.Turns.Name]) }),
		kgo.WithHooks(w.pulse.Load()),
	}
	if w.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(w.cfg.InstanceID))
	}
	if w.cfg.Rack != "" {
		opts = append(opts, kgo.Rack(w.cfg.Rack))
	}
	switch w.cfg.Protocol {
	case ProtocolClassic:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case ProtocolConsumer:
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	return opts
}

// fetchMetadataMinAge bounds how soon leaders are asked for again. Until they are, the client fetches at once again beside a partition
// that answers with an error, such as one whose leader has moved: with its default of 5 s that is a loop of thousands of requests.
const fetchMetadataMinAge = 250 * time.Millisecond

// membership is what the group knows us by now.
func (w *Worker) membership() txn.Membership {
	g := w.group()
	if g == nil {
		return txn.Membership{Generation: -1}
	}
	var m txn.Membership
	m.MemberID, m.Generation = g.GroupMetadata()
	if w.cfg.InstanceID != "" {
		m.InstanceID = &w.cfg.InstanceID
	}
	return m
}

// assigned takes partitions: each is a new epoch, paused until it is restored. The committed offsets come next.
func (w *Worker) assigned(work context.Context, g *kgo.Client, ids []int32) {
	w.metrics.rebalance(work, rebalanceAssigned, len(ids))
	w.loseForeign(work)
	member, _ := g.GroupMetadata()
	if len(ids) > 0 {
		g.PauseFetchPartitions(map[string][]int32{w.cfg.Turns.Name: ids})
	}
	w.mu.Lock()
	w.mu.joined, w.mu.outside = true, false
	closing := w.mu.closing || w.mu.failure != nil
	var strange []int32
	for _, id := range ids {
		if id >= w.cfg.Turns.Partitions {
			strange = append(strange, id)
			continue
		}
		if !closing {
			w.mu.epoch++
			p := w.newPartition(work, id, w.mu.epoch)
			p.member, p.prior = member, w.mu.partitions[id]
			w.mu.partitions[id] = p
		}
	}
	w.shareOutLocked()
	w.mu.Unlock()
	if len(strange) > 0 {
		w.fail(work, &PartitionCountError{Topic: w.cfg.Turns.Name, Was: w.cfg.Turns.Partitions, Is: max(w.cfg.Turns.Partitions, strange[len(strange)-1]) + 1})
		return
	}
	w.calm(sourceGroup)
	w.log.InfoContext(work, "partitions are assigned", slog.Any("partitions", ids))
}

// offsetsFetched begins the restore of the partitions whose committed offset is now known for certain.
func (w *Worker) offsetsFetched(resp *kmsg.OffsetFetchResponse) {
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			if t.Topic != w.cfg.Turns.Name && (t.Topic != "" || t.TopicID != w.cfg.Turns.ID) {
				continue
			}
			for _, fetched := range t.Partitions {
				if fetched.ErrorCode != 0 {
					continue // The poll goroutine hears of it.
				}
				c := committed{offset: fetched.Offset}
				if fetched.Metadata != nil {
					c.metadata = *fetched.Metadata
				}
				w.beginRestore(fetched.Partition, c)
			}
		}
	}
}

func (w *Worker) beginRestore(id int32, c committed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.mu.partitions[id]
	if p == nil || !p.move(stateAssigned, stateRestoring) {
		return
	}
	earlier := w.mu.reading[id]
	if earlier == nil {
		earlier = make(chan struct{})
		close(earlier)
	}
	w.mu.reading[id] = p.restored
	w.wg.Go(func() { p.restoreState(p.intake, c, earlier) })
}

// revoked drains partitions and returns when they are let go of. Group heartbeats go on meanwhile, and so do the others.
func (w *Worker) revoked(ctx context.Context, g *kgo.Client, ids []int32) {
	if len(ids) == 0 {
		return
	}
	w.metrics.rebalance(ctx, rebalanceRevoked, len(ids))
	w.log.InfoContext(ctx, "partitions are revoked", slog.Any("partitions", ids))
	w.loseForeign(ctx)
	var wg sync.WaitGroup
	for _, id := range ids {
		if p := w.partition(id); p != nil {
			wg.Go(func() { p.drain(ctx, w.cfg.DrainBudget, stateGone) })
		}
	}
	wg.Wait()
	w.forget(g, ids)
}

// lost drops partitions that another worker may have already.
func (w *Worker) lost(ctx context.Context, g *kgo.Client, ids []int32) {
	if len(ids) == 0 {
		return
	}
	w.metrics.rebalance(ctx, rebalanceLost, len(ids))
	w.log.WarnContext(ctx, "partitions are lost", slog.Any("partitions", ids))
	for _, id := range ids {
		if p := w.partition(id); p != nil {
			p.end(stateGone, ErrLost)
		}
	}
	w.forget(g, ids)
}

// forget waits until no cycle holds the partitions, and lets their pauses go: they would outlive the assignment.
func (w *Worker) forget(g *kgo.Client, ids []int32) {
	for _, id := range ids {
		if p := w.partition(id); p != nil {
			w.dropPartition(p)
		}
	}
	g.ResumeFetchPartitions(map[string][]int32{w.cfg.Turns.Name: ids})
}

// fencedGrace is how long a worker that joins waits for another process with its instance id to be gone.
const fencedGrace = 30 * time.Second

// groupFault takes what ended a session of the group, which the client tries to join again.
func (w *Worker) groupFault(ctx context.Context, err error) {
	w.log.WarnContext(ctx, "group session ended", slog.Any("error", err))
	w.metrics.retry(ctx, retryGroup)
	w.mu.Lock()
	w.mu.outside = true
	w.mu.Unlock()
	switch {
	case errors.Is(err, kerr.FencedInstanceID):
		w.fenced(ctx, fmt.Errorf("group instance id %q: %w: %w", w.cfg.InstanceID, txn.ErrFencedInstance, err))
	case isRefusal(err):
		w.trouble(ctx, sourceGroup, err)
	}
}

// fenced takes that the group has another member under our instance id. Whoever was in the group has been replaced, and ends. Who only
// joins has met an old process that is about to end, or a join of its own that a broker answered late: a request outlives the
// connection that its client gave up. The client would go on to join as the member that was replaced, and be refused until the other's
// session ends; a new one takes the place.
func (w *Worker) fenced(ctx context.Context, err error) {
	w.mu.Lock()
	joined := w.mu.joined
	w.mu.Unlock()
	if joined {
		w.fail(ctx, err)
		return
	}
	w.troubleFor(ctx, sourceGroup, err, fencedGrace)
	w.askRejoin()
}

// isRefusal reports whether a person has to change rights or settings before it can work.
func isRefusal(err error) bool {
	for _, refusal := range []error{
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.IllegalSaslState, kerr.UnsupportedSaslMechanism, kerr.UnsupportedVersion, kerr.GroupMaxSizeReached,
		kerr.InvalidSessionTimeout, kerr.InconsistentGroupProtocol, kerr.InvalidGroupID, kerr.UnsupportedAssignor,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// isGone reports whether a topic was deleted, or made again under its name.
func isGone(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID) || errors.Is(err, errTopicID)
}

// forceRebalance makes the client look at its membership at once.
func (w *Worker) forceRebalance() {
	if g := w.group(); g != nil {
		g.ForceRebalance()
	}
}

// askRejoin asks for a new membership: the one recovery from whatever the group and we disagree on.
func (w *Worker) askRejoin() { signal(w.rejoin) }
