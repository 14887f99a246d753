// Package fact holds the words of a turn: what was accepted, what the model said, which calls started and how they
// finished, how the turn ended. Every other package that deals with turns speaks in these words; this one promises nothing
// but their meaning and their stored form.
//
// Facts are stored in CBOR (RFC 8949) with integer keys: a field may be added with a new key, none is renumbered.
package fact

import (
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// Fact is something that happened to a turn. The set is closed.
//
//sumtype:decl
type Fact interface {
	isFact()
	// Events is how many output events the fact causes; seq counts them.
	Events() int64
}

// Accepted is the first fact of a turn: the worker took it.
type Accepted struct {
	TurnID      string            `cbor:"1,keyasint"`
	SessionID   string            `cbor:"2,keyasint"`
	AgentName   string            `cbor:"3,keyasint"`
	AgentHash   []byte            `cbor:"4,keyasint"`
	PayloadHash []byte            `cbor:"5,keyasint"`
	Origin      Origin            `cbor:"6,keyasint"`
	At          time.Time         `cbor:"7,keyasint"`
	Deadline    time.Time         `cbor:"8,keyasint,omitzero"`
	Metadata    map[string]string `cbor:"9,keyasint,omitempty"`
	Messages    []Message         `cbor:"10,keyasint,omitempty"`
	// Narrowed says that the turn named its tools; Tools are their names then, as sent.
	Narrowed     bool           `cbor:"11,keyasint,omitempty"`
	Tools        []string       `cbor:"12,keyasint,omitempty"`
	Scope        *schemas.Scope `cbor:"13,keyasint,omitempty"`
	OutputSchema []byte         `cbor:"14,keyasint,omitempty"`
	// Trace is the W3C traceparent of the producer, and TraceState its tracestate.
	Trace      string `cbor:"15,keyasint,omitempty"`
	TraceState string `cbor:"16,keyasint,omitempty"`
	Worker     string `cbor:"17,keyasint"`
	// OwnHistory says that the turn brought assistant or system messages, which replace the stored history for itself.
	OwnHistory bool `cbor:"18,keyasint,omitempty"`
	// Lone says that the turn named no session: what was said in one is not for it, and what it says is kept for no other.
	Lone bool `cbor:"19,keyasint,omitempty"`
}

// Origin is where the turn's record stands.
type Origin struct {
	Topic     string `cbor:"1,keyasint"`
	Partition int32  `cbor:"2,keyasint"`
	Offset    int64  `cbor:"3,keyasint"`
	// TopicID is that of the topic, empty where brokers have none: a topic that is made again has other records at its offsets.
	TopicID []byte `cbor:"4,keyasint,omitempty"`
}

// Responded is one model response, and the first wave of the calls it asked for when one must be durable before it runs.
type Responded struct {
	Response `cbor:"1,keyasint"`
	Wave     []Call    `cbor:"2,keyasint,omitempty"`
	At       time.Time `cbor:"3,keyasint"`
	Worker   string    `cbor:"4,keyasint"`
}

// Began starts calls: a later wave, or one call of a step that only reads.
type Began struct {
	Calls  []Call    `cbor:"1,keyasint"`
	At     time.Time `cbor:"2,keyasint"`
	Worker string    `cbor:"3,keyasint"`
	// Again says that the calls have their tool:start already: they were started, did not begin, and are about to now. It must
	// be as durable as a first start, or a second kill would take them for not begun once more.
	Again bool `cbor:"4,keyasint,omitempty"`
}

// NotBegun says of started calls that none of them began: the worker was drained first. The next worker runs them, without a
// second tool:start.
type NotBegun struct {
	Calls []Ref `cbor:"1,keyasint"`
}

// Finished is the outcome of one call.
type Finished struct {
	Result `cbor:"1,keyasint"`
	At     time.Time `cbor:"2,keyasint"`
	Worker string    `cbor:"3,keyasint"`
}

// Cancelled says that a cancel event asked for the turn's end.
type Cancelled struct {
	Reason string    `cbor:"1,keyasint,omitempty"`
	At     time.Time `cbor:"2,keyasint"`
}

// Restarted says that the turn is started although the worker that had it before may have died of it. It is durable before
// anything of the turn runs, so that it also counts the start that kills the next worker.
type Restarted struct {
	// Start is the number of this start, from 2, counted since a response or the result of a call was last recorded.
	Start  int       `cbor:"1,keyasint"`
	At     time.Time `cbor:"2,keyasint"`
	Worker string    `cbor:"3,keyasint"`
}

// Ended is the last fact of a turn.
type Ended struct {
	Status  string       `cbor:"1,keyasint"`
	Code    schemas.Code `cbor:"2,keyasint,omitempty"`
	Message string       `cbor:"3,keyasint,omitempty"`
	// Output is JSON: the text as a string, or the structured answer; empty when there is none.
	Output     []byte        `cbor:"4,keyasint,omitempty"`
	Usage      schemas.Usage `cbor:"5,keyasint"`
	CostMicros *int64        `cbor:"6,keyasint,omitempty"`
	Steps      int           `cbor:"7,keyasint"`
	ToolCalls  int           `cbor:"8,keyasint"`
	Duration   time.Duration `cbor:"9,keyasint"`
	Workers    int           `cbor:"10,keyasint"`
	At         time.Time     `cbor:"11,keyasint"`
	Worker     string        `cbor:"12,keyasint"`
}

// Progress reports whether a fact shows that its turn got further than before: a response, the result of a call that ran, the end.
func Progress(f Fact) bool {
	switch f := f.(type) {
	case *Responded, *Ended:
		return true
	case *Finished:
		return f.Attempts > 0 // Else it was closed without running.
	case *Accepted, *Began, *NotBegun, *Cancelled, *Restarted:
	}
	return false
}

func (*Accepted) isFact()  {}
func (*Responded) isFact() {}
func (*Began) isFact()     {}
func (*NotBegun) isFact()  {}
func (*Finished) isFact()  {}
func (*Cancelled) isFact() {}
func (*Restarted) isFact() {}
func (*Ended) isFact()     {}

// Events is 1: turn:start.
func (*Accepted) Events() int64 { return 1 }

// Events is turn:step and a tool:start for each call of the wave.
func (f *Responded) Events() int64 { return 1 + int64(len(f.Wave)) }

// Events is a tool:start for each call, none when they have theirs already.
func (f *Began) Events() int64 {
	if f.Again {
		return 0
	}
	return int64(len(f.Calls))
}

// Events is 0: nothing outside needs to know.
func (*NotBegun) Events() int64 { return 0 }

// Events is 1: tool:result.
func (*Finished) Events() int64 { return 1 }

// Events is 0: the turn's end tells.
func (*Cancelled) Events() int64 { return 0 }

// Events is 0: turn:end tells how many workers there were.
func (*Restarted) Events() int64 { return 0 }

// Events is 1: turn:end.
func (*Ended) Events() int64 { return 1 }
