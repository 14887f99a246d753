// Package tools hides what a tool is made of: Go functions today, other sources later. Every source becomes the same value, a
// Tool; binding ties tools to agents and reports everything that is wrong with them at once; a bound agent prepares and executes
// calls.
//
// It promises that nothing runs before its arguments fit, that a call's outcome is never painted better than it is known to be,
// and that no text of a tool leaves the worker unless the tool marked it safe.
package tools

import (
	"encoding/json"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// Limits of a definition.
const (
	maxName        = 128
	maxModelName   = 64
	maxVersion     = 128
	maxDescription = 4096
	maxSchemaBytes = 256 << 10
)

// Defaults of a definition.
const (
	defaultVersion        = "1"
	defaultTimeout        = 30 * time.Second
	defaultMaxResultBytes = 512 << 10
)

// Tool is a tool as the program defined it. Make one with Define; what is wrong with it shows when it is bound.
type Tool struct {
	name string
	opts Options
	run  runner
	in   decoder
	// out is nil unless results are plain and the schema is the one that follows from their type.
	out plainOutput
	// input and output are JSON Schemas; output may be empty.
	input, output []byte
	faults        []problem
}

// runner is a tool's code: it takes the canonical arguments, as they are and as they were read when the call was prepared, and returns a value that
// encoding/json can write. Without a decoded value, or with another tool's, it reads them itself.
type runner func(c *Context, input []byte, decoded any) (any, error)

// Name is the name the tool was defined with.
func (t Tool) Name() string { return t.name }

// Options say how a tool behaves. Description and Effect are required.
type Options struct {
	// Description is written for the model, at most 4,096 characters.
	Description string
	// Version is "1" by default, at most 128 characters. Change it when a recorded call must not run with the new code.
	Version string
	// Effect says what the tool may do to the world outside.
	Effect schemas.Effect
	// Idempotency says whether a call of unknown outcome may run again under its key. By default a tool that has no effect or
	// reads is safe to retry, any other runs at most once.
	Idempotency schemas.Idempotency
	// Retry is how often a failed call is tried again, and when. Only for tools that are safe to retry.
	Retry Retry
	// Timeout bounds one attempt: 30 s by default, at most the turn's duration.
	Timeout time.Duration
	// MaxResultBytes bounds the JSON of a result: 512 KiB by default. A larger one is an error, nothing is cut.
	MaxResultBytes int
	// Input and Output are JSON Schemas (2020-12) that replace those derived from the Go types.
	Input, Output json.RawMessage
	// RequiresApproval gates the tool: true, a condition as a string, or a Go function. Anything but nil and false is refused
	// when the tool is bound, because a worker on Kafka cannot wait for a person.
	RequiresApproval any
	// ApprovalTimeout is refused likewise.
	ApprovalTimeout time.Duration
	// Hints are what the tool's origin says about it; they may not contradict Effect.
	Hints Hints
}

// Hints are the annotations that MCP knows; nil means that nothing was said.
type Hints struct {
	ReadOnly    *bool
	Destructive *bool
}

// Retry is a retry policy. The zero value never retries.
type Retry struct {
	// Retries is how often a failed call is tried again.
	Retries int
	// Initial is the wait before the first retry, Max the longest; 0 means no wait and no bound.
	Initial, Max time.Duration
	// Multiplier is what each wait grows by; 2 by default.
	Multiplier float64
	// Jitter is the part of a wait, 0 to 1, that is left to chance.
	Jitter float64
}

// Retries is the policy that tries again n times without waiting.
func Retries(n int) Retry { return Retry{Retries: n} }

// Settings are what the manifest says about a tool; nil fields leave the definition as it is.
type Settings struct {
	Version        *string
	Description    *string
	Effect         *schemas.Effect
	Idempotency    *schemas.Idempotency
	Retry          *Retry
	Timeout        *time.Duration
	MaxResultBytes *int
	// RequiresApproval is whatever the manifest holds there. False does not open a gate that the program made.
	RequiresApproval any
	ApprovalTimeout  *time.Duration
}

// merge returns the options with the settings applied. Gates add up.
func (o Options) merge(s Settings) Options {
	set(&o.Version, s.Version)
	set(&o.Description, s.Description)
	set(&o.Effect, s.Effect)
	set(&o.Idempotency, s.Idempotency)
	set(&o.Retry, s.Retry)
	set(&o.Timeout, s.Timeout)
	set(&o.MaxResultBytes, s.MaxResultBytes)
	return o
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}
