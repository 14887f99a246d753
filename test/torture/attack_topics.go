package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/internal/oracle"
	"github.com/lathe-run/lathe/test/internal/proc"
	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// operatorPatience is how long what an operator does may take while brokers are attacked.
const operatorPatience = 2 * time.Minute

// statusAttack deletes the topic that workers report to without a promise, and makes it again while they go on.
func statusAttack() Attack {
	return brokerAttack("status_anew", func(ctx context.Context, b *Bed, c *kafkatest.Cluster, rng *rand.Rand) error {
		topic, gone := b.Topic("turn-status"), between(rng, 0, 5*time.Second)
		b.Say("delete %s, make it again after %s", topic, gone.Round(time.Millisecond))
		if err := c.DeleteTopic(ctx, topic); err != nil {
			return err
		}
		if err := pause(ctx, gone); err != nil {
			return err
		}
		_, err := b.adm.CreateTopic(ctx, turnPartitions, -1, nil, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) { // A worker that started meanwhile has made it.
			return nil
		}
		return err
	})
}

// cutAttack deletes the changelog of one partition. A worker that has to restore from it must halt the partition; then the operator
// puts back what he has saved, sets the offset anew as the fault says, and everything goes on.
func cutAttack() Attack {
	return Attack{Name: "changelog_cut", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m, partition := b.Fleet.Pick(rng), int32(rng.IntN(turnPartitions)) //nolint:gosec // Few.
		if b.Brokers.Cluster == nil {
			return errNoCluster
		}
		b.Say("cut the changelog of partition %d off, start %s without its disk, and put the changelog back", partition, m.Name)
		for _, other := range b.Fleet.Members {
			other.Stop()
		}
		saved, err := b.cut(ctx, partition)
		if err != nil {
			return err
		}
		if len(saved) == 0 { // There was nothing to cut.
			return b.Fleet.up()
		}
		if err := b.expectHalt(ctx, m, partition); err != nil {
			return err
		}
		if err := b.putBack(ctx, partition, saved); err != nil {
			return err
		}
		return b.Fleet.up()
	}}
}

// cut saves what the changelog of a partition comes to and deletes it.
func (b *Bed) cut(ctx context.Context, partition int32) ([]*kgo.Record, error) {
	if err := until(ctx, operatorPatience, func() bool { return b.reader.atEnd(ctx) }); err != nil {
		return nil, fmt.Errorf("save the changelog: %w", err)
	}
	var saved []*kgo.Record
	for key, value := range b.reader.fold()[partition] {
		saved = append(saved, &kgo.Record{Topic: b.Topic("changelog"), Partition: partition, Key: []byte(key), Value: []byte(value)})
	}
	if len(saved) == 0 {
		return nil, nil
	}
	err := b.insist(ctx, "cut the changelog", func(ctx context.Context) error {
		return b.Brokers.Cluster.Truncate(ctx, b.Topic("changelog"), map[int32]int64{partition: -1})
	})
	if err != nil {
		return nil, err
	}
	// A try that was broken off has left the policy that lets records be deleted, and the next took it for the topic's own.
	return saved, b.setPolicy(ctx)
}

// setPolicy gives the changelog the policy that it must have.
func (b *Bed) setPolicy(ctx context.Context) error {
	return b.insist(ctx, "set the changelog's policy right", func(ctx context.Context) error {
		return b.Brokers.Cluster.SetTopicConfig(ctx, b.Topic("changelog"), "cleanup.policy", "compact")
	})
}

// repair does what a worker that does not start asks the operator for: a request of his that was broken off may have waited in a broker
// that was stopped, and be carried out when the broker goes on.
func (b *Bed) repair(ctx context.Context, why string) {
	if b.Brokers.Cluster == nil || !strings.Contains(why, "cleanup.policy") {
		return
	}
	if err := b.setPolicy(ctx); err != nil {
		b.log.line("the operator could not: %v", err)
	}
}

// expectHalt starts a worker without its disk and waits until it has halted the partition, and says so.
func (b *Bed) expectHalt(ctx context.Context, m *Member, partition int32) error {
	if err := os.RemoveAll(m.Data()); err != nil {
		return fmt.Errorf("take the disk of %s away: %w", m.Name, err)
	}
	m.Spoil(0)
	if err := m.Start(); err != nil {
		return err
	}
	halted := func() bool {
		p := m.process()
		return p != nil && isHalted(ctx, p, partition)
	}
	if err := until(ctx, operatorPatience, halted); err != nil {
		b.log.violation(oracle.State, "worker %s has not halted partition %d, whose changelog was cut: %v", m.Name, partition, err)
	}
	m.Kill()
	return nil
}

// isHalted reports whether a worker has halted a partition because of its changelog.
func isHalted(ctx context.Context, p *proc.Process, partition int32) bool {
	_, body := p.Probe(ctx, "/readyz?verbose")
	var status struct {
		Partitions []struct {
			Partition int32  `json:"partition"`
			State     string `json:"state"`
		} `json:"partitions"`
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		return false
	}
	for _, s := range status.Partitions {
		if s.Partition == partition && s.State == "halted" {
			return true
		}
	}
	return false
}

// putBack writes what was saved, and sets the offset of the partition to what it is, without what the workers had noted beside it.
// The group has to be empty for that: static members count until their session is over.
func (b *Bed) putBack(ctx context.Context, partition int32, saved []*kgo.Record) error {
	err := b.insist(ctx, "put the changelog back", func(ctx context.Context) error {
		return b.client.ProduceSync(ctx, saved...).FirstErr()
	})
	if err != nil {
		return err
	}
	return b.insist(ctx, "set the offset anew", func(ctx context.Context) error {
		committed, err := b.adm.FetchOffsets(kadm.RequireStable(ctx), b.app)
		if err != nil {
			return err
		}
		at, ok := committed.Lookup(b.Topic("turns"), partition)
		if !ok {
			return nil
		}
		var offsets kadm.Offsets
		offsets.AddOffset(b.Topic("turns"), partition, at.At, -1)
		return b.adm.CommitAllOffsets(ctx, b.app, offsets)
	})
}

// insist does what an operator does until the brokers take it.
func (b *Bed) insist(ctx context.Context, what string, do func(context.Context) error) error {
	var last error
	err := until(ctx, operatorPatience, func() bool {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		last = do(ctx)
		return last == nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w; the last try: %w", what, err, last)
	}
	return nil
}
