package torture

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
	"github.com/lathe-run/lathe/test/netcut"
)

// Short, so that what outlasts them fits into a run; a transaction outlasts a session, so that both can be outlasted apart.
const (
	sessionTimeout     = 6 * time.Second
	transactionTimeout = 10 * time.Second
	drainBudget        = 10 * time.Second
	turnPartitions     = 6
)

// Brokers are where a run takes place.
type Brokers struct {
	Addrs []string
	// Cluster is nil when the brokers cannot be attacked.
	Cluster *kafkatest.Cluster
	// Nets are the networks of the workers in their order; without, they talk to the brokers directly.
	Nets []*netcut.Net
}

// Bed is one deployment under torture: topics, a group, workers, and what watches them. What attacks use of it is safe for
// concurrent use.
type Bed struct {
	// Fleet are the workers.
	Fleet *Fleet
	// Brokers are the brokers.
	Brokers Brokers

	cfg    Config
	app    string
	dir    string
	log    *journal
	client *kgo.Client
	adm    *kadm.Client
	load   *load
	reader *reader
	watch  *watcher
}

// newBed makes the work folder, the topic of turns and the clients.
func newBed(ctx context.Context, cfg Config, brokers Brokers, out io.Writer) (*Bed, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("lathe-torture-%d-", cfg.Seed))
	if err != nil {
		return nil, fmt.Errorf("make the work folder: %w", err)
	}
	b := &Bed{
		Brokers: brokers, cfg: cfg, dir: dir, log: newJournal(out),
		app: strings.ReplaceAll(filepath.Base(dir), "_", "-"),
	}
	for name, text := range map[string]string{"lathe.yaml": manifest, "script.yaml": script} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("write the manifest: %w", err)
		}
	}
	if b.client, err = b.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		return nil, err
	}
	b.adm = kadm.NewClient(b.client)
	if err := b.createTurns(ctx); err != nil {
		b.client.Close()
		return nil, err
	}
	b.Fleet = newFleet(b)
	b.load = newLoad(b)
	return b, nil
}

func (b *Bed) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.Brokers.Addrs...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.UnknownTopicRetries(-1),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return cl, nil
}

// Topic is the name of one of the deployment's topics: turns, tool-events, turn-events, turn-status, turns.dlq or changelog.
func (b *Bed) Topic(name string) string {
	if name == "changelog" {
		name = b.app + ".changelog"
	}
	return b.app + "." + name
}

// Group is the deployment's consumer group.
func (b *Bed) Group() string { return b.app }

func (b *Bed) createTurns(ctx context.Context) error {
	if _, err := b.adm.CreateTopic(ctx, turnPartitions, -1, nil, b.Topic("turns")); err != nil {
		return fmt.Errorf("make the topic of turns: %w", err)
	}
	return until(ctx, time.Minute, func() bool {
		d, err := b.adm.ListTopics(ctx, b.Topic("turns"))
		return err == nil && d.Error() == nil && len(d[b.Topic("turns")].Partitions) == turnPartitions
	})
}

// settings are those of all workers.
func (b *Bed) settings() map[string]string {
	return map[string]string{
		"LATHE_BROKERS": strings.Join(b.Brokers.Addrs, ","), "LATHE_APP": b.app, "LATHE_TOPIC_PREFIX": b.app + ".",
		"LATHE_MANIFEST": filepath.Join(b.dir, "lathe.yaml"), "LATHE_ADMIN_ADDR": "127.0.0.1:0", "LATHE_LOG_FORMAT": "json",
		"LATHE_GROUP_PROTOCOL": b.cfg.Protocol, "LATHE_SESSION_TIMEOUT": sessionTimeout.String(),
		"LATHE_TRANSACTION_TIMEOUT": transactionTimeout.String(), "LATHE_DRAIN_BUDGET": drainBudget.String(),
	}
}

func (b *Bed) close() {
	b.Fleet.killAll()
	b.client.Close()
}

// pause waits, or returns the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", context.Cause(ctx))
	}
}

// until waits until the condition holds.
func until(ctx context.Context, limit time.Duration, holds func() bool) error {
	late := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(late) {
			return fmt.Errorf("not in %s", limit)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
