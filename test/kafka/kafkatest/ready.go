package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// retryInterval is the pause between two looks at a cluster that is not ready.
const retryInterval = 100 * time.Millisecond

// waitReady returns when every broker is in the metadata, and groups and transactions have coordinators.
func (c *Cluster) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout,
		fmt.Errorf("the cluster is not ready after %s", readyTimeout))
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(retryInterval), kgo.RequestRetries(0))
	if err != nil {
		return fmt.Errorf("make the client of the readiness check: %w", err)
	}
	defer cl.Close()
	var last error
	for {
		if last = c.ready(ctx, cl); last == nil {
			return nil
		}
		if errors.Is(last, errBrokerDied) {
			return last
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(retryInterval):
		}
	}
}

// ready looks once.
func (c *Cluster) ready(ctx context.Context, cl *kgo.Client) error {
	for _, b := range c.brokers {
		if err := b.died(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("read the metadata: %w", err)
	}
	if len(meta.Brokers) < len(c.addrs) {
		return fmt.Errorf("%d of %d brokers are there", len(meta.Brokers), len(c.addrs))
	}
	// Every partition of the coordinators' topics has to have a leader, or the first users would wait for it.
	for _, kind := range []int8{coordinatorOfGroup, coordinatorOfTransaction} {
		if err := coordinators(ctx, cl, kind); err != nil {
			return err
		}
	}
	return nil
}

// The kinds of coordinator in FindCoordinator.
const (
	coordinatorOfGroup       int8 = 0
	coordinatorOfTransaction int8 = 1
)

// coordinators asks for enough coordinators of one kind that each partition of their topic is likely among them.
func coordinators(ctx context.Context, cl *kgo.Client, kind int8) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = kind
	for i := range 20 {
		req.CoordinatorKeys = append(req.CoordinatorKeys, fmt.Sprintf("lathe-ready-%d", i))
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("find coordinators: %w", err)
	}
	for _, c := range resp.Coordinators {
		if err := kerr.ErrorForCode(c.ErrorCode); err != nil {
			return fmt.Errorf("find the coordinator of %s: %w", c.Key, err)
		}
	}
	return nil
}
