package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Causes of a lane's context, and answers of Assignment.Permit.
var (
	// ErrDraining says that no model request and no call may begin any more, while what runs may end. Only Permit gives it.
	ErrDraining = errors.New("the partition is being drained")
	// ErrDrainBudget says that the time to drain is over.
	ErrDrainBudget = errors.New("the drain budget is spent")
	// ErrLost says that another worker has the partition: nothing that is done for it now will be kept.
	ErrLost = errors.New("the partition is lost")
	// ErrStopped says that the worker was told to stop at once.
	ErrStopped = errors.New("the worker stops at once")
	// ErrHalted says that the partition has a fault which a person has to look at.
	ErrHalted = errors.New("the partition is halted")
	// ErrSuspended is wrapped by what Handle and a Task return when the turn stopped because of one of the above: nothing is
	// completed, whoever has the partition next resumes it.
	ErrSuspended = errors.New("the turn is suspended")
	// ErrRedone is wrapped by what Handle and a Task return when Refused has dropped what the turn did: a task that Refused has
	// returned does it again.
	ErrRedone = errors.New("the turn is done again")
)

// Handler knows what the records mean. It is safe for concurrent use.
type Handler interface {
	// Open is called when a partition's state is restored, before its first record is handled. An error halts the partition.
	Open(ctx context.Context, a *Assignment) (PartitionHandler, error)
}

// PartitionHandler handles the records of one assignment of one partition. It is safe for concurrent use. Contexts are
// cancelled with one of the causes above.
type PartitionHandler interface {
	// Resume returns the unfinished turns in the state whose record lies below Assignment.Start, so that it is never
	// redelivered. They enter their lanes ahead of any record.
	Resume(ctx context.Context) ([]Task, error)
	// Handle runs the turn of a record to its end. Within a lane it is called in log order, one at a time. Nil says that an
	// effect which completes rec.Offset was added to Assignment.State. A *schemas.Error whose code is the reason of a dead
	// letter makes the record one; then nothing may have been added for it. ErrSuspended completes nothing. Any other error
	// halts the partition.
	Handle(ctx context.Context, rec *Record) error
	// Cancel adds the effect of a cancel event, which completes rec.Offset, and applies it to its turn. It is called in log
	// order but outside any lane, must not wait for a turn, and returns what Handle does.
	Cancel(ctx context.Context, rec *Record) error
	// Rejected gives the events that go beside the dead letter of a record that could be decoded.
	Rejected(rec *Record, reason *schemas.Error) []statestore.Output
}

// Refuser is implemented by a PartitionHandler that can do without a turn's record which the broker will not take. Without it every
// refused record halts its partition.
type Refuser interface {
	// Refused drops the uncommitted effects that the record belongs to, with those of turns that have read them, and puts others
	// in their place, or returns tasks that do. It must get closer to an end each time, or return an error, which halts the
	// partition. It is called between two cycles and must not wait for a turn; the lane of the effect's owner begins nothing
	// until it has returned. A turn that it stops returns ErrRedone.
	Refused(ctx context.Context, r *Refusal) ([]Task, error)
}

// Rememberer is implemented by a PartitionHandler that knows which turns have begun. A record that may have been right when its turn
// began, before settings changed, is then asked about before it is made a dead letter; if its turn has begun it is handled, with Refused
// set. Both methods are called in log order, on the goroutine that has called Resume, and must not wait for a turn.
type Rememberer interface {
	// Begun reports whether the record's turn may be under way or have ended.
	Begun(rec *Record) bool
	// Recall is asked about a record that cannot be read. If the state has a turn under way that began with the record at this offset, it
	// gives an event with the turn's ids, and the payload hash; they become the record's. Else it gives nil.
	Recall(offset int64) (ev *schemas.TurnEvent, hash []byte)
}

// Owner is what the effects of a turn have as their owner.
type Owner interface {
	// LaneKey is the session.
	LaneKey() string
}

// Expirer is implemented by a PartitionHandler whose state has things that expire. Expire is called now and then, one call at a
// time. It adds effects of bounded size, each when the last is committed, and returns when nothing more is due or ctx ends. It
// returns how much expired; an error halts the partition, save ErrGone of the state store.
type Expirer interface {
	Expire(ctx context.Context) (int, error)
}

// Refusal is a record that the broker will never take.
type Refusal struct {
	// Topic is an output topic, or the changelog.
	Topic string
	Key   []byte
	// Effect is the one that the record belongs to.
	Effect *statestore.Effect
	// Output is the refused output; nil when it was a changelog record.
	Output *statestore.Output
	// Size is about what the record takes, in bytes.
	Size int
	// Err is the broker's reason.
	Err error
}

// Fault is the error of a refusal that nothing can be done about.
func (r *Refusal) Fault() error {
	return fmt.Errorf("the broker refuses a record of %d bytes for topic %s, key %q: %w", r.Size, r.Topic, r.Key, r.Err)
}

// Detail says it for events.
func (r *Refusal) Detail() string {
	reason := "it is not valid"
	if e, ok := errors.AsType[*kerr.Error](r.Err); ok {
		reason = e.Message
	}
	return fmt.Sprintf("the broker refuses a record of %d bytes for topic %s: %s", r.Size, r.Topic, reason)
}

// TooLarge reports whether it was refused because of its size.
func (r *Refusal) TooLarge() bool {
	return errors.Is(r.Err, kerr.MessageTooLarge) || errors.Is(r.Err, kerr.RecordListTooLarge)
}

// Task is work for a lane that no record brings, or brings again.
type Task struct {
	// LaneKey is the session.
	LaneKey string
	// Run returns what Handle does.
	Run func(ctx context.Context) error
	// Record is what the task completes; without it no dead letter can come of it.
	Record *Record
}

// Record is a decoded record of the turns topic. It is the handler's to keep; nothing in it may be changed.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Key       []byte
	ValueSize int
	Headers   []schemas.Header
	// Event has no more than the ids when the record cannot be read any more and is handled since its turn is under way.
	Event *schemas.TurnEvent
	// Hash is the payload hash.
	Hash []byte
	// Lone says that the event names no session.
	Lone     bool
	Encoding schemas.Encoding
	// Suspect says that the partition's last owner may have died and may have run the turn as it did.
	Suspect bool
	// Refused is why the record is a dead letter unless its turn has begun before; only a Rememberer is given such records.
	Refused *schemas.Error

	value []byte
	// batch says that the value is a batch which could not be read.
	batch bool
}

// Assignment is one assignment of one partition to this worker.
type Assignment struct {
	Topic string
	// TopicID is zero where brokers have none.
	TopicID   [16]byte
	Partition int32
	// Epoch tells the assignments of this process apart.
	Epoch uint64
	// Start is the offset that consumption begins at.
	Start int64
	// Clean says that the last owner, if any, left nothing in flight: it was drained.
	Clean bool
	// Died says that the last owner may have died: it left no clean mark, and was not this process.
	Died bool
	// State is the partition's state, and where effects are added.
	State *statestore.Partition

	permit func(ctx context.Context) error
	// draining is closed when nothing is to begin any more.
	draining <-chan struct{}
}

// Permit is called just before a model request or a call begins. It gives nil while the partition is certainly ours and
// running, ErrDraining while it or the worker drains, ErrLost, ErrStopped or ErrHalted when it is over. When the group was not
// heard from for half a session, as after a long pause of the process, or when too much waits for its commit, it waits until that
// is over, or ctx ends.
func (a *Assignment) Permit(ctx context.Context) error { return a.permit(ctx) }

// Draining is closed when nothing may begin any more: whoever waits to begin something then gives up. It comes before the lanes'
// contexts are cancelled, or with it.
func (a *Assignment) Draining() <-chan struct{} { return a.draining }

// NewAssignment makes an assignment for tests of handlers.
func NewAssignment(a Assignment, permit func(ctx context.Context) error) *Assignment {
	a.permit = permit
	return &a
}
