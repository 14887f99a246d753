package kafkatest

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lookTimeout is how long a broker may take to answer one look at it.
const lookTimeout = 5 * time.Second

// ID is the node id of broker i (from 0).
func (c *Cluster) ID(i int) int32 { return int32(i + 1) } //nolint:gosec // a handful of brokers

// Running reports whether broker i (from 0) is a live process, paused or not.
func (c *Cluster) Running(i int) bool { return c.brokers[i].pid() != 0 }

// Pause stops broker i (from 0) where it is, with SIGSTOP: its connections stay open and nothing answers.
func (c *Cluster) Pause(i int) error { return c.brokers[i].pause(true) }

// Resume lets a paused broker i (from 0) go on.
func (c *Cluster) Resume(i int) error { return c.brokers[i].pause(false) }

func (b *broker) pause(on bool) error {
	cmd, _ := b.running()
	if cmd == nil {
		return fmt.Errorf("pause broker %d: %w", b.id, errBrokerDied)
	}
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	if err := syscall.Kill(-cmd.Process.Pid, sig); err != nil {
		return fmt.Errorf("send %s to broker %d: %w", sig, b.id, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.paused = on
	return nil
}

// serving reports whether the broker runs and is not paused.
func (b *broker) serving() bool {
	if b.pid() == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.mu.paused
}

// AwaitHealthy returns when every broker serves and sees all brokers, and, for every partition of every topic, a leader and
// all replicas in sync.
func (c *Cluster) AwaitHealthy(ctx context.Context) error {
	return c.awaitViews(ctx, "the cluster is healthy", func(views []*kmsg.MetadataResponse) error {
		if len(views) < len(c.addrs) {
			return fmt.Errorf("%d of %d brokers serve", len(views), len(c.addrs))
		}
		for _, v := range views {
			if len(v.Brokers) < len(c.addrs) {
				return fmt.Errorf("a broker sees %d of %d", len(v.Brokers), len(c.addrs))
			}
			if err := eachPartition(v, healthy); err != nil {
				return err
			}
		}
		return nil
	})
}

// AwaitShrunk returns when broker i (from 0) is in sync for no partition and leads none, as every serving broker sees it.
// It takes the brokers' session (broker.session.timeout.ms) after a kill or a pause.
func (c *Cluster) AwaitShrunk(ctx context.Context, i int) error {
	id := c.ID(i)
	return c.awaitViews(ctx, fmt.Sprintf("broker %d is out of sync", id), func(views []*kmsg.MetadataResponse) error {
		for _, v := range views {
			if err := eachPartition(v, func(p *kmsg.MetadataResponseTopicPartition) error {
				if p.Leader == id || slices.Contains(p.ISR, id) {
					return fmt.Errorf("leader %d, in sync %v", p.Leader, p.ISR)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

func healthy(p *kmsg.MetadataResponseTopicPartition) error {
	if p.ErrorCode != 0 || p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
		return fmt.Errorf("leader %d, replicas %v, in sync %v: %w", p.Leader, p.Replicas, p.ISR, kerr.ErrorForCode(p.ErrorCode))
	}
	return nil
}

// eachPartition returns the first error, with the partition it is about.
func eachPartition(v *kmsg.MetadataResponse, check func(*kmsg.MetadataResponseTopicPartition) error) error {
	for _, t := range v.Topics {
		for i := range t.Partitions {
			if err := check(&t.Partitions[i]); err != nil {
				return fmt.Errorf("partition %d of %s: %w", t.Partitions[i].Partition, *t.Topic, err)
			}
		}
	}
	return nil
}

// awaitViews looks until the check passes, at what every serving broker knows of all topics.
func (c *Cluster) awaitViews(ctx context.Context, what string, check func([]*kmsg.MetadataResponse) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not in %s", readyTimeout))
	defer cancel()
	eyes, err := c.eyes()
	if err != nil {
		return err
	}
	defer func() {
		for _, cl := range eyes {
			cl.Close()
		}
	}()
	for {
		views, err := look(ctx, eyes)
		if err == nil {
			err = check(views)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, context.Cause(ctx), err)
		case <-time.After(retryInterval):
		}
	}
}

// eyes are clients of one serving broker each: a broker is asked for what it knows itself.
func (c *Cluster) eyes() ([]*kgo.Client, error) {
	var eyes []*kgo.Client
	for _, addr := range c.serving() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DisableClientMetrics(), kgo.RequestRetries(0))
		if err != nil {
			return nil, fmt.Errorf("make a client of the broker at %s: %w", addr, err)
		}
		eyes = append(eyes, cl)
	}
	return eyes, nil
}

// serving are the addresses of the brokers that run and are not paused; of a cluster given from outside all.
func (c *Cluster) serving() []string {
	if !c.Owned() {
		return c.addrs
	}
	var addrs []string
	for _, b := range c.brokers {
		if b.serving() {
			addrs = append(addrs, b.addr)
		}
	}
	return addrs
}

func look(ctx context.Context, eyes []*kgo.Client) ([]*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var views []*kmsg.MetadataResponse
	for _, cl := range eyes {
		req := kmsg.NewPtrMetadataRequest() // without topics it asks for all
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("ask a broker: %w", err)
		}
		view, ok := resp.(*kmsg.MetadataResponse)
		if !ok {
			return nil, fmt.Errorf("ask a broker: %T is no metadata", resp)
		}
		views = append(views, view)
	}
	return views, nil
}
