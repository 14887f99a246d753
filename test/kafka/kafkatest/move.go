package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The topics whose leaders are coordinators.
const (
	offsetsTopic      = "__consumer_offsets"
	transactionsTopic = "__transaction_state"
)

// MoveLeaders gives every partition of the topics another leader, its next replica in sync, and returns when all brokers
// know it. Replicas stay where they are.
func (c *Cluster) MoveLeaders(ctx context.Context, topics ...string) error {
	return c.move(ctx, func(topic string, _ int32) bool { return slices.Contains(topics, topic) })
}

// MoveLeader gives one partition another leader, as [Cluster.MoveLeaders] does.
func (c *Cluster) MoveLeader(ctx context.Context, topic string, partition int32) error {
	return c.move(ctx, func(t string, p int32) bool { return t == topic && p == partition })
}

// MoveGroupCoordinator gives a group another coordinator, by moving the leader of its partition of the offsets.
func (c *Cluster) MoveGroupCoordinator(ctx context.Context, group string) error {
	return c.moveCoordinator(ctx, offsetsTopic, group)
}

// MoveTransactionCoordinator gives a transactional id another coordinator.
func (c *Cluster) MoveTransactionCoordinator(ctx context.Context, id string) error {
	return c.moveCoordinator(ctx, transactionsTopic, id)
}

func (c *Cluster) moveCoordinator(ctx context.Context, topic, key string) error {
	partitions, err := c.partitions(ctx, topic)
	if err != nil {
		return err
	}
	return c.MoveLeader(ctx, topic, partitionFor(key, partitions))
}

// partitions is how many a topic has.
func (c *Cluster) partitions(ctx context.Context, topic string) (int32, error) {
	var n int32
	err := c.administer(func(_ *kgo.Client, adm *kadm.Client) error {
		topics, err := adm.ListTopicsWithInternal(ctx, topic)
		if err == nil {
			err = topics.Error()
		}
		if err != nil {
			return fmt.Errorf("look for topic %s: %w", topic, err)
		}
		n = int32(len(topics[topic].Partitions)) //nolint:gosec // a handful
		return nil
	})
	return n, err
}

// partitionFor is the partition of a coordinators' topic that a key belongs to, as brokers reckon: with Java's hash.
func partitionFor(key string, partitions int32) int32 {
	var h int32
	for _, unit := range key { // UTF-16 units, which for the ASCII of names are the runes
		h = 31*h + unit
	}
	switch {
	case h == -1<<31:
		h = 0
	case h < 0:
		h = -h
	}
	return h % partitions
}

// place is a partition.
type place struct {
	topic     string
	partition int32
}

// move gives the chosen partitions another leader.
func (c *Cluster) move(ctx context.Context, chosen func(topic string, partition int32) bool) error {
	want, err := c.reassign(ctx, chosen)
	if err != nil {
		return err
	}
	return c.awaitViews(ctx, "the leaders have moved", func(views []*kmsg.MetadataResponse) error {
		arrived := true
		for _, v := range views {
			for p, leader := range want {
				arrived = arrived && leaderIn(v, p) == leader
			}
		}
		if arrived {
			return nil
		}
		return errors.Join(errNotMoved, c.elect(ctx, want))
	})
}

var errNotMoved = errors.New("not every broker knows the new leaders")

// reassign puts another replica first in each partition's list, and returns the leaders that there are to be.
func (c *Cluster) reassign(ctx context.Context, chosen func(string, int32) bool) (map[place]int32, error) {
	want := make(map[place]int32)
	err := c.administer(func(_ *kgo.Client, adm *kadm.Client) error {
		topics, err := adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return fmt.Errorf("look for what to move: %w", err)
		}
		var req kadm.AlterPartitionAssignmentsReq
		for _, t := range topics {
			for _, p := range t.Partitions {
				if !chosen(t.Topic, p.Partition) {
					continue
				}
				replicas := leadNext(p.Replicas, p.ISR, p.Leader)
				want[place{t.Topic, p.Partition}] = replicas[0]
				req.Assign(t.Topic, p.Partition, replicas)
			}
		}
		if len(want) == 0 {
			return errors.New("there is nothing to move")
		}
		done, err := adm.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = done.Error()
		}
		if err != nil {
			return fmt.Errorf("reorder replicas: %w", err)
		}
		return nil
	})
	return want, err
}

// leadNext puts the replica in sync that follows the leader first. If there is no other, all stays as it is.
func leadNext(replicas, inSync []int32, leader int32) []int32 {
	at := max(0, slices.Index(replicas, leader))
	for i := range replicas {
		next := (at + 1 + i) % len(replicas)
		if slices.Contains(inSync, replicas[next]) {
			return slices.Concat(replicas[next:], replicas[:next])
		}
	}
	return replicas
}

// elect makes the first replicas leaders. A broker that is not in sync yet may be so when it is asked again.
func (c *Cluster) elect(ctx context.Context, want map[place]int32) error {
	set := make(kadm.TopicsSet)
	for p := range want {
		set.Add(p.topic, p.partition)
	}
	return c.administer(func(_ *kgo.Client, adm *kadm.Client) error {
		results, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		if err != nil {
			return fmt.Errorf("elect leaders: %w", err)
		}
		var errs []error
		for topic, partitions := range results {
			for p, r := range partitions {
				if r.Err != nil && !errors.Is(r.Err, kerr.ElectionNotNeeded) {
					errs = append(errs, fmt.Errorf("elect the leader of %s/%d: %w", topic, p, r.Err))
				}
			}
		}
		return errors.Join(errs...)
	})
}

func leaderIn(v *kmsg.MetadataResponse, at place) int32 {
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			if *t.Topic == at.topic && p.Partition == at.partition {
				return p.Leader
			}
		}
	}
	return -1
}

// administer makes a client of the serving brokers for the time of f.
func (c *Cluster) administer(f func(*kgo.Client, *kadm.Client) error) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.serving()...), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(retryInterval), kgo.RequestTimeoutOverhead(lookTimeout))
	if err != nil {
		return fmt.Errorf("make an administrator: %w", err)
	}
	defer cl.Close()
	return f(cl, kadm.NewClient(cl))
}
