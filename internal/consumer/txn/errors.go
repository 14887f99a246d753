package txn

import (
	"errors"
	"fmt"
	"slices"
)

// Why a cycle was aborted, in Result.Err. Its effects stay, to go with the next cycle, unless the comment says
// otherwise.
var (
	// ErrRebalance says that the membership of the cycle is no longer the group's: commit again with a new one.
	ErrRebalance = errors.New("the group has rebalanced")
	// ErrMemberUnknown says that the group has thrown the member out: every partition is lost.
	ErrMemberUnknown = errors.New("the group does not know the member")
	// ErrNotMember refuses a membership that the broker would accept without a fence: no member id or no generation.
	ErrNotMember = errors.New("not a member of the group")
	// ErrStale wraps what Cycle.Check returned.
	ErrStale = errors.New("an epoch of the cycle has changed")
	// ErrPartitionLost says that another worker has committed a partition of the cycle: see Result.Lost.
	ErrPartitionLost = errors.New("a partition of the cycle has another owner")
	// ErrTopicGone says that a topic was deleted or made again; TopicGoneError names it.
	ErrTopicGone = errors.New("a topic is gone")
	// ErrLogCut says that the changelog has lost its end, or was made again; LogCutError says of which partitions. Nothing more of
	// them may be committed: it would make what is left look whole.
	ErrLogCut = errors.New("the changelog ends before what was written to it")
	// ErrTooLarge says that the broker will never take a record; RecordError has its index.
	ErrTooLarge = errors.New("the broker refuses a record")
	// ErrBatchRefused says that the broker refuses a batch of records, and that none of them is known to be the one: the next
	// cycle sends smaller batches. It is an ErrTooLarge too.
	ErrBatchRefused = errors.New("the broker refuses a batch, the next ones are smaller")
	// ErrConfig says that the broker forbids the worker something, or does not know it; ConfigError names what. It may be
	// repaired while the worker runs.
	ErrConfig = errors.New("the broker refuses the worker")
	// ErrTransient is everything that may pass by itself: try again after a while.
	ErrTransient = errors.New("the brokers did not do it")
)

// Why a Ring can't go on. Commit returns them itself, and from then on ErrClosed.
var (
	// ErrFencedInstance says that another process has joined the group with our instance id.
	ErrFencedInstance = errors.New("another process has our group instance id")
	// ErrSecondProcess says that another process commits with our transactional ids: everything is lost.
	ErrSecondProcess = errors.New("another process has our transactional ids")
	// ErrDuplicateID says that our transactional ids were fenced again and again though the group is healthy.
	ErrDuplicateID = errors.New("our transactional ids are fenced again and again, two processes share them")
	// ErrUndecided says that the context ended before the outcome of a cycle was known: apply nothing of it.
	ErrUndecided = errors.New("the outcome of the cycle is not known")
	// ErrClosed says that the Ring was closed or has failed before.
	ErrClosed = errors.New("the ring is closed")
)

// RecordError are records that the broker will not take: each was refused when it was alone, so there is no other to blame.
type RecordError struct {
	// Indexes are their places in Cycle.Records, in order.
	Indexes []int
	Err     error
}

// Error returns the indexes and the broker's reason.
func (e *RecordError) Error() string {
	return fmt.Sprintf("records %v of the cycle: %s", e.Indexes, e.Err)
}

// Unwrap returns the broker's error, an ErrTooLarge.
func (e *RecordError) Unwrap() error { return e.Err }

// TopicGoneError is a topic that is not there, or no longer the one it was. Right after a broker has started it may
// still be unaware of a topic.
type TopicGoneError struct {
	Topic string
	Err   error
}

// Error returns the topic and the broker's reason.
func (e *TopicGoneError) Error() string {
	if e.Topic == "" {
		return fmt.Sprintf("%s: %s", ErrTopicGone, e.Err)
	}
	return fmt.Sprintf("%s: topic %s: %s", ErrTopicGone, e.Topic, e.Err)
}

// Unwrap returns ErrTopicGone and the broker's error.
func (e *TopicGoneError) Unwrap() []error { return []error{ErrTopicGone, e.Err} }

// ConfigError is something that the broker refuses until a person changes a setting, here or there.
type ConfigError struct {
	// Resource is what it is about, in words: "topic orders", "transactional id a/b/0".
	Resource string
	Err      error
}

// Error returns the resource and the broker's reason.
func (e *ConfigError) Error() string { return fmt.Sprintf("%s: %s: %s", ErrConfig, e.Resource, e.Err) }

// Unwrap returns ErrConfig and the broker's error.
func (e *ConfigError) Unwrap() []error { return []error{ErrConfig, e.Err} }

// LogCutError is a changelog record that was given an offset which had been given before.
type LogCutError struct {
	// Partitions are all of the cycle for which this is so; the offsets are those of the first.
	Partitions []int32
	// Offset is what the record was given, Next what it should have been at least.
	Offset, Next int64
}

// add notes a record; the error is nil before the first.
func (e *LogCutError) add(partition int32, offset, next int64) *LogCutError {
	if e == nil {
		e = &LogCutError{Offset: offset, Next: next}
	}
	if !slices.Contains(e.Partitions, partition) {
		e.Partitions = append(e.Partitions, partition)
	}
	return e
}

// Error returns the partitions and the offsets.
func (e *LogCutError) Error() string {
	return fmt.Sprintf("%s: partitions %v: offset %d comes after %d", ErrLogCut, e.Partitions, e.Offset, e.Next)
}

// Unwrap returns ErrLogCut.
func (e *LogCutError) Unwrap() error { return ErrLogCut }
