package fact

import (
	"strconv"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// Ref is a call's place in its turn: the step whose response asked for it, and its position there, both from 0.
type Ref struct {
	Step     int `cbor:"1,keyasint"`
	Position int `cbor:"2,keyasint"`
}

// Key is the idempotency key of the call at r in a turn: <turn_id>/<step>/<position>. Ids hold no slash, so two places never
// share a key.
func (r Ref) Key(turnID string) string {
	b := make([]byte, 0, len(turnID)+8)
	return string(r.AppendPlace(append(b, turnID...)))
}

// AppendPlace appends what stands behind the turn's id in a key.
func (r Ref) AppendPlace(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, '/'), int64(r.Step), 10)
	return strconv.AppendInt(append(dst, '/'), int64(r.Position), 10)
}

// Call is a call that is ready to run: its tool exists and its arguments fit. Stored when it starts, it says what a resumed
// turn must find again.
type Call struct {
	Ref    `cbor:"1,keyasint"`
	CallID string `cbor:"2,keyasint,omitempty"`
	Tool   Tool   `cbor:"3,keyasint"`
	// Input is the canonical JSON of the validated arguments.
	Input []byte `cbor:"4,keyasint"`
	// Decoded is what Input was read as when the call was prepared, for the tool's first attempt; nil for a call that was resumed.
	Decoded any `cbor:"-"`
}

// Tool is the identity of a bound tool, as a started call records it.
type Tool struct {
	Name        string              `cbor:"1,keyasint"`
	Version     string              `cbor:"2,keyasint"`
	Effect      schemas.Effect      `cbor:"3,keyasint"`
	Idempotency schemas.Idempotency `cbor:"4,keyasint"`
	// Fingerprint is a hash of name, version, description and input schema, in hex.
	Fingerprint string `cbor:"5,keyasint"`
}

// Changes reports whether a call of the tool can change something outside, so that its start must be durable before it runs.
func (t Tool) Changes() bool {
	return t.Effect == schemas.EffectWrite || t.Effect == schemas.EffectHost || t.Idempotency == schemas.AtMostOnce
}

// Result is the outcome of one call.
type Result struct {
	Ref     `cbor:"1,keyasint"`
	CallID  string       `cbor:"2,keyasint,omitempty"`
	Tool    Tool         `cbor:"3,keyasint"`
	Status  string       `cbor:"4,keyasint"`
	Code    schemas.Code `cbor:"5,keyasint,omitempty"`
	Message string       `cbor:"6,keyasint,omitempty"`
	// Output is canonical JSON: compact, keys sorted. Empty unless Status is ok.
	Output []byte `cbor:"7,keyasint,omitempty"`
	// Started says whether a tool:start stands before this result.
	Started    bool          `cbor:"8,keyasint,omitempty"`
	Attempts   int           `cbor:"9,keyasint,omitempty"`
	Duration   time.Duration `cbor:"10,keyasint,omitempty"`
	CostMicros *int64        `cbor:"11,keyasint,omitempty"`
	// ForModel is what the model is told instead of Message when the call failed; the tool marked it safe. Never in events.
	ForModel string `cbor:"12,keyasint,omitempty"`
	// InputHash is the SHA-256 of the call's Input, so that a resumed turn can compare. Empty for a call that never started.
	InputHash []byte `cbor:"13,keyasint,omitempty"`
}

// OK reports whether the tool answered.
func (r *Result) OK() bool { return r.Status == schemas.StatusOK }

// InDoubt reports whether the call may have changed something although it did not succeed.
func (r *Result) InDoubt() bool {
	return r.Status == schemas.StatusOutcomeUnknown || r.Status == schemas.StatusIndeterminate
}

// Invocation is what a call is told of the turn it runs for.
type Invocation struct {
	TurnID    string
	SessionID string
	Agent     string
	Scope     *schemas.Scope
	// Durable says that the call's start is committed, so that no other call can ever have its key.
	Durable bool
}
