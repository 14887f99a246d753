package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/metric"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Protocol is the group protocol.
type Protocol string

// The group protocols.
const (
	// ProtocolClassic is cooperative-sticky, the default.
	ProtocolClassic Protocol = "classic"
	// ProtocolConsumer is KIP-848.
	ProtocolConsumer Protocol = "consumer"
)

// Topic is what the worker has to know of a topic.
type Topic struct {
	Name       string
	ID         [16]byte
	Partitions int32
	// MaxMessageBytes is the topic's max.message.bytes; 0 means no limit is known.
	MaxMessageBytes int
}

// Config is plain data. Fields without a default are required.
type Config struct {
	// Turns is the input topic.
	Turns Topic
	// Changelog has as many partitions as Turns.
	Changelog Topic
	// ChangelogDeleteRetention is the changelog's delete.retention.ms, 24 h by default. Local state older than that, less a
	// margin, is not trusted: it may have missed a tombstone.
	ChangelogDeleteRetention time.Duration
	// DeadLetters is where refused records go.
	DeadLetters Topic
	// Outputs are the other topics that effects write to.
	Outputs []Topic

	// Group is the consumer group.
	Group string
	// InstanceID makes the membership static; empty means dynamic.
	InstanceID string
	// LeaveOnStop makes a static member leave the group for good when it ends: its partitions go to others at once, and not when
	// its session ends; it has to be given them anew when it comes back.
	LeaveOnStop bool
	// Rack lets the client fetch from a replica nearby; empty means from the leader.
	Rack     string
	Protocol Protocol
	// SessionTimeout is the group session, 45 s by default. With KIP-848 it is the broker's and must be given as it is there.
	SessionTimeout time.Duration
	// HeartbeatInterval is 3 s by default. With KIP-848 it is the broker's.
	HeartbeatInterval time.Duration
	// Partitioner is how producers choose the partition of a turn, murmur2 by default.
	Partitioner Partitioner
	// MaxTurnBytes bounds the record of a turn event: key, value, headers and framing; 1 MiB by default.
	MaxTurnBytes int

	// Window is how many turns of one partition are delivered and not done at most, 256 by default.
	Window int
	// MaxInFlight is the same for the worker, 1,024 by default.
	MaxInFlight int
	// MaxBufferedBytes bounds the records that wait for their turn or are in it, and the effects that wait for their commit, 64 MiB
	// by default. Each partition has an equal share, of at least 512 KiB.
	MaxBufferedBytes int64
	// FetchMaxWait is how long the broker holds an empty fetch, 250 ms by default. A resumed partition waits as long.
	FetchMaxWait time.Duration
	// FetchMaxBytes bounds one fetch from one broker, 16 MiB by default.
	FetchMaxBytes int32
	// MaxDecompressBytes bounds one record batch, 64 MiB by default.
	MaxDecompressBytes int

	// RestoreParallel is how many partitions read their changelog at the same moment, 4 by default; the others take turns with
	// them. Each holds one answer, RestoreFetchBytes, and about 2 MiB of it decompressed.
	RestoreParallel int
	// RestoreFetchBytes is how much of the changelog one request asks for, 2 MiB by default.
	RestoreFetchBytes int32

	// Linger is how long an effect that nobody waits for may wait for company, 10 ms by default.
	Linger time.Duration
	// CycleBytes and CycleRecords bound one cycle, 16 MiB and 50,000 by default.
	CycleBytes   int
	CycleRecords int

	// DrainBudget is how long turns may go on when their partition is revoked or the worker stops, 45 s by default.
	DrainBudget time.Duration
	// CommitBudget is how long the last cycle of a drained partition may take, 10 s by default.
	CommitBudget time.Duration
	// Stall ends the worker when effects wait that long without a cycle that succeeds, or records without being taken, 2 min by
	// default.
	Stall time.Duration
	// RefusalGrace is how long the broker may refuse the worker (rights, settings) before it gives up, 10 min by default.
	RefusalGrace time.Duration

	// Txn configures the ring. Group, Changelog, NewClient, Logger and Meter are filled in.
	Txn txn.Config
}

// Decoder reads the records of the turns topic. Its errors are *schemas.Error.
type Decoder interface {
	Decode(ctx context.Context, value []byte, headers []schemas.Header) (*schemas.Decoded, error)
}

// Deps are what a Worker works with.
type Deps struct {
	Handler Handler
	Decoder Decoder
	Store   *statestore.Store
	// NewClient makes a client from the base options of the worker (brokers, TLS, SASL, dialer, logger) and opts.
	NewClient func(opts ...kgo.Opt) (*kgo.Client, error)
	Logger    *slog.Logger
	// Meter may be nil: no metrics.
	Meter metric.Meter
	// Now is the time that is stored; nil is time.Now.
	Now func() time.Time
	// Hooks are for tests; the zero value does nothing.
	Hooks Hooks
}

// Hooks are called before and after the numbered steps of the cycle that are not the ring's, on the committer's goroutine.
type Hooks struct {
	Txn          txn.Hooks
	BeforeTake   func(ctx context.Context)
	BeforeSettle func(ctx context.Context)
	AfterSettle  func(ctx context.Context)
	// LogStartMoves says that compaction moves the start of a log, as on kfake and on no Apache Kafka: then a truncated changelog
	// can't be told from one that was compacted.
	LogStartMoves bool
}

func call(ctx context.Context, hook func(context.Context)) {
	if hook != nil {
		hook(ctx)
	}
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (c Config) withDefaults() Config {
	orDefault(&c.ChangelogDeleteRetention, 24*time.Hour)
	orDefault(&c.Protocol, ProtocolClassic)
	orDefault(&c.SessionTimeout, 45*time.Second)
	orDefault(&c.HeartbeatInterval, 3*time.Second)
	orDefault(&c.Partitioner, PartitionerMurmur2)
	orDefault(&c.MaxTurnBytes, 1<<20)
	orDefault(&c.Window, 256)
	orDefault(&c.MaxInFlight, 1024)
	orDefault(&c.MaxBufferedBytes, 64<<20)
	orDefault(&c.FetchMaxWait, 250*time.Millisecond)
	orDefault(&c.FetchMaxBytes, 16<<20)
	orDefault(&c.MaxDecompressBytes, 64<<20)
	orDefault(&c.RestoreParallel, 4)
	orDefault(&c.RestoreFetchBytes, 2<<20)
	orDefault(&c.Linger, 10*time.Millisecond)
	orDefault(&c.CycleBytes, 16<<20)
	orDefault(&c.CycleRecords, 50_000)
	orDefault(&c.DrainBudget, 45*time.Second)
	orDefault(&c.CommitBudget, 10*time.Second)
	orDefault(&c.Stall, 2*time.Minute)
	orDefault(&c.RefusalGrace, 10*time.Minute)
	return c
}

func (c Config) validate() error {
	var faults []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	for _, t := range append([]Topic{c.Turns, c.Changelog, c.DeadLetters}, c.Outputs...) {
		need(t.Name != "" && t.Partitions > 0, "topic %q needs a name and partitions", t.Name)
	}
	need(c.Turns.Partitions == c.Changelog.Partitions, "changelog %s has %d partitions, %s has %d: they must be the same",
		c.Changelog.Name, c.Changelog.Partitions, c.Turns.Name, c.Turns.Partitions)
	need(c.Group != "", "a group is needed")
	need(c.Protocol == ProtocolClassic || c.Protocol == ProtocolConsumer, "group protocol %q is unknown", c.Protocol)
	need(c.Partitioner.known(), "partitioner %q is unknown", c.Partitioner)
	need(c.Window > 0 && c.MaxInFlight > 0, "window and in-flight limit must be positive")
	if len(faults) > 0 {
		return fmt.Errorf("configure the consumer: %w", errors.Join(faults...))
	}
	return nil
}

func (d Deps) validate() error {
	if d.Handler == nil || d.Decoder == nil || d.Store == nil || d.NewClient == nil || d.Logger == nil {
		return errors.New("configure the consumer: handler, decoder, store, client and logger are needed")
	}
	return nil
}

// outputs gives the partition count of every topic that effects may write to.
func (c Config) outputs() map[string]int32 {
	m := map[string]int32{c.DeadLetters.Name: c.DeadLetters.Partitions}
	for _, t := range c.Outputs {
		m[t.Name] = t.Partitions
	}
	return m
}

// batchBytes gives what every topic that is written to takes at most, where that is known.
func (c Config) batchBytes() map[string]int {
	m := make(map[string]int)
	for _, t := range append([]Topic{c.Changelog, c.DeadLetters}, c.Outputs...) {
		if t.MaxMessageBytes > 0 {
			m[t.Name] = t.MaxMessageBytes
		}
	}
	return m
}
