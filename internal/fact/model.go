package fact

import (
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// Role says who speaks in a message.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one message of the conversation as a model is given it.
type Message struct {
	Role  Role           `cbor:"1,keyasint"`
	Text  string         `cbor:"2,keyasint,omitempty"`
	Parts []schemas.Part `cbor:"3,keyasint,omitempty"`
	// Calls are what an assistant message asked for.
	Calls []Asked `cbor:"4,keyasint,omitempty"`
	// CallID and Tool say what a tool message answers; Failed that the call failed. Its Text is the answer.
	CallID string `cbor:"5,keyasint,omitempty"`
	Tool   string `cbor:"6,keyasint,omitempty"`
	Failed bool   `cbor:"7,keyasint,omitempty"`
	// Opaque is an assistant message as its Provider sent it, to be sent back to that provider unchanged.
	Opaque   []byte `cbor:"8,keyasint,omitempty"`
	Provider string `cbor:"9,keyasint,omitempty"`
}

// Asked is a call that a response asks for, before it is checked.
type Asked struct {
	// Name is the tool's name as the model was shown it.
	Name   string `cbor:"1,keyasint"`
	CallID string `cbor:"2,keyasint"`
	// Arguments is the text the model wrote; it need not be JSON.
	Arguments []byte `cbor:"3,keyasint"`
}

// Response is what a model answered.
type Response struct {
	Step         int           `cbor:"1,keyasint"`
	Text         string        `cbor:"2,keyasint,omitempty"`
	Calls        []Asked       `cbor:"3,keyasint,omitempty"`
	FinishReason string        `cbor:"4,keyasint"`
	Provider     string        `cbor:"5,keyasint"`
	Model        string        `cbor:"6,keyasint"`
	Usage        schemas.Usage `cbor:"7,keyasint"`
	// CostMicros is nil when the model has no price.
	CostMicros *int64        `cbor:"8,keyasint,omitempty"`
	Duration   time.Duration `cbor:"9,keyasint"`
	// Opaque is the assistant message as the provider sent it.
	Opaque []byte `cbor:"10,keyasint,omitempty"`
}

// Request asks a model for the next response of a turn.
type Request struct {
	// Model is the name in the manifest; Spec what was recorded of it when the turn was accepted.
	Spec     ModelSpec
	TurnID   string
	Session  string
	Agent    string
	Step     int
	System   string
	Messages []Message
	Tools    []ToolSpec
	// OutputSchema is the JSON Schema that the final answer must fit; empty when there is none.
	OutputSchema []byte
	// Draining is closed when the request must not be made any more if it has not been, nor again; nil never is.
	Draining <-chan struct{}
}

// ModelSpec is what a turn records of its model when it is accepted.
type ModelSpec struct {
	// Name is the model's name in the manifest.
	Name     string `cbor:"1,keyasint"`
	Provider string `cbor:"2,keyasint"`
	Model    string `cbor:"3,keyasint"`
	// Params is canonical JSON.
	Params []byte `cbor:"4,keyasint,omitempty"`
}

// ToolSpec is a tool as a model is offered it.
type ToolSpec struct {
	// Name is the form the model sees, with '.' and '/' as '_'.
	Name        string
	Description string
	// Input is the JSON Schema of the arguments.
	Input []byte
}

// Agent is the configuration that a turn runs under, recorded by its hash so that a deployment does not change turns under
// way.
type Agent struct {
	Name   string    `cbor:"1,keyasint"`
	Model  ModelSpec `cbor:"2,keyasint"`
	System string    `cbor:"3,keyasint,omitempty"`
	// Tools are those that were bound, in the order they are offered.
	Tools   []Tool `cbor:"4,keyasint,omitempty"`
	History bool   `cbor:"5,keyasint,omitempty"`
	Limits  Limits `cbor:"6,keyasint"`
	// ContinueOnUnknown and FailOnToolError are the manifest's on_unknown_outcome and on_tool_error.
	ContinueOnUnknown bool `cbor:"7,keyasint,omitempty"`
	FailOnToolError   bool `cbor:"8,keyasint,omitempty"`
}

// Limits bound a turn; each has a default, so none is 0.
type Limits struct {
	Steps        int           `cbor:"1,keyasint"`
	Calls        int           `cbor:"2,keyasint"`
	Parallel     int           `cbor:"3,keyasint"`
	Failures     int           `cbor:"4,keyasint"`
	Duration     time.Duration `cbor:"5,keyasint"`
	ContextBytes int           `cbor:"6,keyasint"`
}
