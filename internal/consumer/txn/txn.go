// Package txn hides Kafka transactions: a Ring of producers used in turn commits one cycle after another, each of them
// records and consumed offsets in one transaction, and says for certain of every cycle whether it was committed.
//
// What it promises: Commit says Committed only when a read_committed reader will see every record of the cycle and the
// group has its offsets, and Aborted only when neither will ever be. An outcome that the broker did not tell is found out
// before Commit returns, and until then nothing else is begun.
//
//	begin -> announce -> produce -> flush -> TxnOffsetCommit -> check -> EndTxn
//	             any of them fails: abort            |             no answer: replace the slot, read the offsets back
package txn

import (
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Config is what a Ring needs. Fields without a default are required.
type Config struct {
	// App and Instance name this worker in its transactional ids. No two pairs of them give one id.
	App      string
	Instance string
	// Incarnation is 64 random bits of this process. A restarted worker has the ids of its predecessor, never its
	// incarnation.
	Incarnation uint64
	// ClientID is what the brokers know the slots by, each with its number after it; App by default.
	ClientID string
	// Group is the consumer group whose offsets are committed.
	Group string
	// Changelog is the topic whose promised offsets give Result.ChangelogNext. Empty means none.
	Changelog string
	// Slots is the number of producers used in turn, 3 by default.
	Slots int
	// Timeout is the transaction timeout, 15 s by default.
	Timeout time.Duration
	// TransactionVersion is the finalized feature transaction.version of the cluster. Below 2 offsets are added to a
	// transaction by a request of their own, and nothing newer is spoken.
	TransactionVersion int
	// BatchBytes is the largest batch of a topic, before compression; no larger record can be sent to it. It should be the
	// topic's max.message.bytes. Topics that are not in it get 1,000,012, which suits Kafka's default.
	BatchBytes map[string]int
	// NewClient makes a client from the base options of the worker (brokers, TLS, SASL, dialer, logger) and opts.
	NewClient func(opts ...kgo.Opt) (*kgo.Client, error)
	// Logger is required.
	Logger *slog.Logger
	// Meter counts cycles and replaced slots. Nil means no metrics.
	Meter metric.Meter
	// Hooks are for tests; the zero value does nothing.
	Hooks Hooks

	// silent is for tests too: partitions are not announced.
	silent bool
}

// Membership is what the group knows the consuming client by. With KIP-848 the generation is the member epoch.
type Membership struct {
	MemberID   string
	Generation int32
	// InstanceID is nil without static membership.
	InstanceID *string
}

// Offset is the part of a cycle that fences one partition: it is committed even if Offset did not move.
type Offset struct {
	Topic       string
	TopicID     [16]byte
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	// ChangelogNext is the partition's changelog position before this cycle.
	ChangelogNext int64
	// ChangelogFrom goes into the metadata, see Metadata.
	ChangelogFrom int64
	// Clean marks the last commit of a drained partition.
	Clean bool
	// Baseline is the metadata as it was when the partition was assigned, or as our last committed cycle wrote it
	// (Result.Metadata). An unknown outcome is decided against it.
	Baseline string
}

// Cycle is one transaction: what becomes durable together. All offsets are of one topic.
type Cycle struct {
	// Records have their partition set. They must be fresh for every attempt: producing changes them.
	Records []*kgo.Record
	Offsets []Offset
	Group   Membership
	// Check is called right before the end: an error says that an epoch changed, and aborts the cycle. Nil means no
	// check.
	Check func() error
}

// Outcome is what became of a cycle.
type Outcome uint8

const (
	// Aborted cycles left nothing that a read_committed reader sees, nor an offset.
	Aborted Outcome = iota
	// Committed cycles are durable.
	Committed
)

// String returns the outcome's name, for logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Aborted:
		return "aborted"
	case Committed:
		return "committed"
	}
	return "unknown"
}

// Result says what became of a cycle.
type Result struct {
	Outcome Outcome
	// CID is the number of the cycle, in the metadata of its offsets.
	CID uint64
	// Err says why the cycle was aborted; errors.Is and errors.AsType find what to do about it (see the Err
	// variables). Nil when it was committed.
	Err error
	// Metadata is what was written, by partition: the next Baseline. Nil unless committed.
	Metadata map[int32]string
	// ChangelogNext is the changelog position of each partition of the cycle. Nil unless committed.
	ChangelogNext map[int32]int64
	// Resolved says that the broker did not tell the outcome and it was found out afterwards.
	Resolved bool
	// Lost are partitions of the cycle that another worker has committed since. Whatever the outcome, their effects
	// must be dropped and their state restored; if every partition is lost, the outcome can't be known, and is Aborted.
	Lost []int32
	// Elapsed is the time from Begin to the known outcome.
	Elapsed time.Duration
}

const (
	defaultSlots   = 3
	defaultTimeout = 15 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Slots == 0 {
		c.Slots = defaultSlots
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.ClientID == "" {
		c.ClientID = c.App
	}
	if c.Meter == nil {
		c.Meter = noop.Meter{}
	}
	return c
}

// validate returns every fault of a Config at once.
func (c Config) validate() error {
	var faults []error
	require := func(ok bool, fault string) {
		if !ok {
			faults = append(faults, errors.New(fault))
		}
	}
	require(c.App != "", "App is empty")
	require(c.Instance != "", "Instance is empty")
	require(c.Group != "", "Group is empty")
	require(c.Slots > 0, "Slots is not positive")
	require(c.Timeout >= time.Second, "Timeout is below a second")
	require(c.NewClient != nil, "NewClient is nil")
	require(c.Logger != nil, "Logger is nil")
	return errors.Join(faults...)
}

// batchBytes is the largest batch of a topic, within what the client can do.
func (c Config) batchBytes(topic string) int {
	n, ok := c.BatchBytes[topic]
	if !ok || n <= 0 {
		n = defaultBatchBytes
	}
	return min(max(n, minBatchBytes), maxBatchBytes)
}

const (
	defaultBatchBytes = 1_000_012
	minBatchBytes     = 512
	// maxBatchBytes leaves room for a request within the 100 MiB that client and brokers allow by default.
	maxBatchBytes = 96 << 20
)

// flushLimit is when a cycle that has not got its records to the brokers gives up, from its begin. It leaves time to
// end the transaction before the coordinator does.
func (c Config) flushLimit() time.Duration { return min(10*time.Second, c.Timeout*2/5) }

// offsetsLimit is the same for the offsets.
func (c Config) offsetsLimit() time.Duration { return c.Timeout * 7 / 10 }

// txID returns the transactional id of a slot. The parts are escaped, so that no two pairs of app and instance give one
// id and none holds the separator of Metadata.
func (c Config) txID(slot int) string {
	return url.PathEscape(c.App) + "/" + url.PathEscape(c.Instance) + "/" + strconv.Itoa(slot)
}
