package llm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goccy/go-yaml"
)

// Script is the YAML form of a scripted model:
//
//	version: 1
//	scenarios:
//	  - name: refund                     # for errors; default: its number
//	    match:                           # all that are given must hold; none matches everything
//	      agent: support
//	      turn: demo-                    # a prefix of the turn's id
//	      session: customer-             # a prefix of the session's id
//	      user: '(?i)refund (?P<order>\w+)'   # a regular expression on the last user message
//	    repeat: false                    # true begins again after the last step, for ever
//	    steps:                           # the answer to step 0, 1, ...
//	      - text: I look it up.
//	        calls:                       # several are asked for together
//	          - {name: lookup_order, arguments: {order_id: "{{order}}"}}
//	        usage: {input_tokens: 120, output_tokens: 30}
//	        delay: 500ms
//	      - text: "It says {{result.0}}."
//	        pad: 500                     # fills the text up to so many bytes with words, others in each turn
//	        finish_reason: stop          # default: tool_call if there are calls, else stop
//
// The first scenario that matches is taken, at the request's step; so an answer depends on nothing but the request. When
// there is no scenario or no such step the model fails with model_invalid_response.
//
// Text and arguments may hold {{turn_id}}, {{session_id}}, {{agent}}, {{step}}, {{user}} (the last user message),
// {{result.N}} (the N-th tool result since the last answer, from 0) and the groups of match.user, {{order}} or {{1}}.
// Arguments are given as a map, or as a string that is what the model wrote, JSON or not.
//
// A step may fail instead, or first:
//
//   - error: {status: 429, retry_after: 2s, times: 2}   # as a server's answer, for the first 2 attempts
//     text: Here you are.                               # then this
//   - error: {code: model_refused, message: no}         # ends the request
type Script struct {
	Version   int        `yaml:"version"`
	Scenarios []Scenario `yaml:"scenarios"`
}

// Scenario is a sequence of answers and what it is for.
type Scenario struct {
	Name   string  `yaml:"name"`
	Match  Match   `yaml:"match"`
	Repeat bool    `yaml:"repeat"`
	Steps  []Reply `yaml:"steps"`
}

// Match says which requests a scenario is for.
type Match struct {
	Agent   string `yaml:"agent"`
	Turn    string `yaml:"turn"`
	Session string `yaml:"session"`
	User    string `yaml:"user"`
}

// Reply is the answer to one step.
type Reply struct {
	Text         string         `yaml:"text"`
	Pad          int            `yaml:"pad"`
	Calls        []ScriptedCall `yaml:"calls"`
	FinishReason string         `yaml:"finish_reason"`
	Usage        ScriptedUsage  `yaml:"usage"`
	Delay        time.Duration  `yaml:"delay"`
	Error        *ScriptedError `yaml:"error"`
}

// ScriptedCall is a call that a reply asks for.
type ScriptedCall struct {
	Name string `yaml:"name"`
	// ID is the provider's id; default: call_<step>_<position>.
	ID string `yaml:"id"`
	// Arguments is a map, or the text that the model wrote; default: {}.
	Arguments any `yaml:"arguments"`
}

// ScriptedUsage counts tokens, input with the cached ones.
type ScriptedUsage struct {
	InputTokens      int64 `yaml:"input_tokens"`
	OutputTokens     int64 `yaml:"output_tokens"`
	CacheReadTokens  int64 `yaml:"cache_read_tokens"`
	CacheWriteTokens int64 `yaml:"cache_write_tokens"`
	ReasoningTokens  int64 `yaml:"reasoning_tokens"`
}

// ScriptedError makes a reply fail.
type ScriptedError struct {
	// Status is an HTTP status, treated as from a server.
	Status     int           `yaml:"status"`
	RetryAfter time.Duration `yaml:"retry_after"`
	// Code is the provider's code beside a status; alone it is ours, such as model_refused, and ends the request.
	Code    string `yaml:"code"`
	Message string `yaml:"message"`
	// Times is for how many attempts of one request it fails; 0 is always.
	Times int `yaml:"times"`
}

func decodeScript(data []byte) (Script, error) {
	var s Script
	err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&s)
	if errors.Is(err, io.EOF) {
		return s, errors.New("it is empty")
	}
	if err != nil {
		return s, fmt.Errorf("decode: %w", err)
	}
	if s.Version != 1 {
		return s, fmt.Errorf("version is %d, want 1", s.Version)
	}
	return s, nil
}
