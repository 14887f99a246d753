//go:build kafka

package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/netcut"
)

// TestControl_OneBrokerOfThree breaks one broker after another of one cluster, which takes long to start.
func TestControl_OneBrokerOfThree(t *testing.T) {
	t.Parallel()
	n, err := netcut.Open(3)
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	c := Private(t, Config{Brokers: 3, Nets: [][]string{n.Addrs()}, Properties: map[string]string{
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500",
	}})
	must(t, n.Forward(t.Context(), c.Behind(0)))
	topic := c.Topic(t, 3, nil)
	direct := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, c.AwaitHealthy(t.Context()))

	t.Run("what comes through a net learns no other way", func(t *testing.T) { //nolint:paralleltest // They break it by turns.
		through := c.Client(t, kgo.SeedBrokers(n.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		produceAll(t, through, topic)
		brokers, err := kadm.NewClient(through).ListBrokers(t.Context())
		must(t, err)
		for _, b := range brokers {
			if addr := fmt.Sprintf("%s:%d", b.Host, b.Port); !slices.Contains(n.Addrs(), addr) {
				t.Errorf("broker %d is at %s, want one of %v", b.NodeID, addr, n.Addrs())
			}
		}
		n.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := through.Ping(ctx); err == nil {
			t.Error("the brokers can be reached through a net that is cut")
		}
		produceAll(t, direct, topic)
		must(t, n.Heal())
		produceAll(t, through, topic)
	})
	t.Run("a paused broker falls out of sync and comes back", func(t *testing.T) { //nolint:paralleltest // as above
		must(t, c.Pause(1))
		if !c.Running(1) {
			t.Error("a paused broker does not run")
		}
		must(t, c.AwaitShrunk(t.Context(), 1))
		produceAll(t, direct, topic)
		must(t, c.Resume(1))
		must(t, c.AwaitHealthy(t.Context()))
	})
	t.Run("a killed broker comes back with its data", func(t *testing.T) { //nolint:paralleltest // as above
		c.Kill(2)
		if c.Running(2) {
			t.Error("a killed broker runs")
		}
		if err := c.Pause(2); !errors.Is(err, errBrokerDied) {
			t.Errorf("pause a killed broker: %v", err)
		}
		must(t, c.AwaitShrunk(t.Context(), 2))
		produceAll(t, direct, topic)
		must(t, c.Restart(t.Context(), 2))
		must(t, c.AwaitHealthy(t.Context()))
		produceAll(t, direct, topic)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// produceAll writes to each partition of a topic of three.
func produceAll(t *testing.T, cl *kgo.Client, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for p := range int32(3) {
		must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte(t.Name())}).FirstErr())
	}
}
