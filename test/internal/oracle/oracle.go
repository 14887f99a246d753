// Package oracle judges workers by what they left behind: the events that a read_committed reader sees, the ledger of what their
// tools really did, the dead letters, the committed offsets, the changelog and the local state. It knows nothing of how the
// evidence was gathered, and what it finds it says by the promise that was broken.
package oracle

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/world"
)

// Promise names what a violation breaks. One fault is told once, under the promise that it breaks first: a turn that was lost
// does not also make its session's order wrong.
type Promise string

// The promises.
const (
	// EventOnce: each event id once.
	EventOnce Promise = "event_once"
	// OneEnd: each turn exactly one turn:end.
	OneEnd Promise = "one_end"
	// Stream: a turn's events go from its start to its end without a gap, the end is as expected, and each record says what it
	// holds.
	Stream Promise = "stream"
	// CallOrder: each tool:result after its tool:start, one of each, none open at the turn's end, and nothing ran unannounced.
	CallOrder Promise = "call_order"
	// AtMostOnce: a call that may run at most once is at most once in the ledger.
	AtMostOnce Promise = "at_most_once"
	// Completed: a completed call ran at least once and has one recorded result; only a call that may not run again is in doubt.
	Completed Promise = "completed"
	// SessionOrder: the turns of a session one after another, in the order of the log.
	SessionOrder Promise = "session_order"
	// OffsetPrefix: the committed offset is the end of a contiguous run of records that are done, at any time.
	OffsetPrefix Promise = "offset_prefix"
	// State: the changelog remembers each ended turn and no journal, and local state is the fold of the committed changelog.
	State Promise = "state"
	// DeadLetters: exactly the bad records, each with its reason, place and bytes.
	DeadLetters Promise = "dead_letters"
	// InTime: all done within a bounded time.
	InTime Promise = "in_time"
	// CleanStop: a worker that is asked to stop ends clean, and leaves nothing in doubt.
	CleanStop Promise = "clean_stop"
	// Sound: no worker panics, races, or ends by itself.
	Sound Promise = "sound"
)

// Violation is a broken promise.
type Violation struct {
	Promise Promise
	Text    string
}

// String is one line.
func (v Violation) String() string { return string(v.Promise) + ": " + v.Text }

// Turn is a turn that was sent, and how it may end.
type Turn struct {
	ID, Session string
	// May are the statuses it may end with, or status:code for a status with that code alone; none means completed.
	May []string
}

// DeadLetter is a record that must be refused.
type DeadLetter struct {
	Partition int32
	Offset    int64
	// May are the reasons it may be refused for.
	May []string
	// What it is, for messages.
	What string
	// Value is what was sent; it comes back whole unless it is too large.
	Value []byte
}

// Output is one event as a read_committed reader sees it.
type Output struct {
	*schemas.OutputRecord

	Env *schemas.Envelope
	Rec *kgo.Record
}

// Offset is a committed offset.
type Offset struct {
	At int64
	// Clean says that its metadata is ours and has the mark of a drained partition.
	Clean bool
	// Metadata is as it stands, for messages.
	Metadata string
}

// Input is a record of the turns topic, for OffsetPrefix.
type Input struct {
	Partition int32
	Offset    int64
	// Turn must have ended before the record is done; empty for records that begin none.
	Turn string
}

// Sample is one look at the committed offsets, and then at how far the outputs had been written.
type Sample struct {
	Committed map[int32]int64
	// TurnEvents are the ends of the partitions of the turn events.
	TurnEvents map[int32]int64
}

// Local is the state that a worker left on its disk for one partition.
type Local struct {
	Worker    string
	Partition int32
	// Next is the changelog offset that the state stands at.
	Next   int64
	Values map[string][]byte
}

// Evidence is everything there is to judge by. Of outputs, letters and state each partition is in the order of its log.
type Evidence struct {
	// Topic is that of turns.
	Topic string
	// Sent are the turns; those of one session in the order of the log.
	Sent    []Turn
	Bad     []DeadLetter
	Outputs []Output
	Letters []*kgo.Record
	// Changelog are the committed records.
	Changelog []*kgo.Record
	Ledger    []world.Entry
	// Committed are the group's offsets, Ends the log's, by partition.
	Committed map[int32]Offset
	Ends      map[int32]int64
	Inputs    []Input
	Samples   []Sample
	Local     []Local
	// Late says that the wait for all turns to end was given up after that time; zero means that it was not.
	Late time.Duration
}

// judge is one judgement.
type judge struct {
	*Evidence

	turns map[string]*story
	found []Violation
}

// story is what is known of one turn.
type story struct {
	Turn

	sent   bool
	ends   int
	events []Output
	status string
	// letter says that the turn's own record was refused, which is told as that.
	letter bool
}

// Check returns every broken promise, in no order of weight.
func (e *Evidence) Check() []Violation {
	j := &judge{Evidence: e, turns: make(map[string]*story, len(e.Sent))}
	j.events()
	j.deadLetters()
	j.ended()
	for _, s := range e.Sent {
		j.turn(j.turns[s.ID])
	}
	j.strangers()
	j.ledger()
	j.sessions()
	j.offsets()
	j.prefix()
	j.state()
	j.local()
	return j.found
}

func (j *judge) fault(p Promise, format string, args ...any) {
	j.found = append(j.found, Violation{p, fmt.Sprintf(format, args...)})
}

// done reports whether every turn has come to its end, or is known not to.
func (j *judge) done() bool { return j.Late == 0 }

// Indeterminate counts the calls whose outcome nobody knows.
func (e *Evidence) Indeterminate() int {
	n := 0
	for _, o := range e.Outputs {
		if o.Tool != nil && o.Tool.Status == schemas.StatusIndeterminate {
			n++
		}
	}
	return n
}

// header is the value of the last header of a name.
func header(rec *kgo.Record, name string) string {
	for _, h := range slices.Backward(rec.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// place says where a record is.
func place(rec *kgo.Record) string {
	return fmt.Sprintf("%s/%d:%d", rec.Topic, rec.Partition, rec.Offset)
}
