package schemas

import (
	"encoding/json"
	"time"
)

// Envelope is what every output event carries.
type Envelope struct {
	EventID string `json:"event_id"`
	Type    string `json:"type"`
	// Seq counts the events of a turn from 0 over both event topics; nil on events that are not part of that order.
	Seq           *int64            `json:"seq,omitempty"`
	TurnID        string            `json:"turn_id"`
	SessionID     string            `json:"session_id"`
	Agent         string            `json:"agent"`
	At            time.Time         `json:"at"`
	Worker        string            `json:"worker"`
	SchemaVersion int               `json:"schema_version"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// ToolEvent is a record of the tool-events topic: tool:start or tool:result.
type ToolEvent struct {
	Envelope
	Step           *int32 `json:"step,omitempty"`
	Position       *int32 `json:"position,omitempty"`
	ID             string `json:"id,omitempty"`
	CallID         string `json:"call_id,omitempty"`
	IdempotencyKey string `json:"idempotency_key"`
	Tool           string `json:"tool"`
	ToolVersion    string `json:"tool_version,omitempty"`
	Effect         Effect `json:"effect,omitempty"`

	// Input is set on tool:start; everything below on tool:result.
	Input       json.RawMessage `json:"input,omitempty"`
	Status      string          `json:"status,omitempty"`
	Code        Code            `json:"code,omitempty"`
	Message     string          `json:"message,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes *int64          `json:"output_bytes,omitempty"`
	Cached      *bool           `json:"cached,omitempty"`
	Started     *bool           `json:"started,omitempty"`
	Attempts    *int32          `json:"attempts,omitempty"`
	DurationMS  *int64          `json:"duration_ms,omitempty"`
	CostMicros  *int64          `json:"cost_micros,omitempty"`
}

// TurnOutput is a record of the turn-events topic: turn:start, turn:step, turn:end or turn:rejected. Each type fills its
// own fields; turn_output.avsc says which.
type TurnOutput struct {
	Envelope

	// turn:start, and the input's position on turn:rejected.
	Model     string        `json:"model,omitempty"`
	Provider  string        `json:"provider,omitempty"`
	Tools     []OfferedTool `json:"tools,omitempty"`
	Topic     string        `json:"topic,omitempty"`
	Partition *int32        `json:"partition,omitempty"`
	Offset    *int64        `json:"offset,omitempty"`

	// turn:step.
	Step         *int32      `json:"step,omitempty"`
	Text         *string     `json:"text,omitempty"`
	Calls        []AskedCall `json:"calls,omitempty"`
	FinishReason string      `json:"finish_reason,omitempty"`

	// turn:end, and code and message on turn:rejected.
	Status    string          `json:"status,omitempty"`
	Code      Code            `json:"code,omitempty"`
	Message   string          `json:"message,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Results   []BatchResult   `json:"results,omitempty"`
	Steps     *int32          `json:"steps,omitempty"`
	ToolCalls *int32          `json:"tool_calls,omitempty"`
	Workers   *int32          `json:"workers,omitempty"`

	// turn:step and turn:end.
	Usage      *Usage `json:"usage,omitempty"`
	CostMicros *int64 `json:"cost_micros,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty"`
}

// OfferedTool names a tool that the model was offered, with the fingerprint of its definition.
type OfferedTool struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	Fingerprint string `json:"fingerprint"`
}

// AskedCall is a call that a model response asked for.
type AskedCall struct {
	Name      string          `json:"name"`
	CallID    string          `json:"call_id"`
	Arguments json.RawMessage `json:"arguments"`
}

// BatchResult is the outcome of one planned call, in input order.
type BatchResult struct {
	ID     string          `json:"id"`
	Status string          `json:"status"`
	Code   Code            `json:"code,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	// EventID names the tool:result that holds the output when it is not inline.
	EventID string `json:"event_id,omitempty"`
}

// Usage counts tokens. Input includes the cached ones.
type Usage struct {
	InputTokens      int64 `json:"input_tokens" cbor:"1,keyasint,omitempty"`
	OutputTokens     int64 `json:"output_tokens" cbor:"2,keyasint,omitempty"`
	CacheReadTokens  int64 `json:"cache_read_tokens" cbor:"3,keyasint,omitempty"`
	CacheWriteTokens int64 `json:"cache_write_tokens" cbor:"4,keyasint,omitempty"`
	ReasoningTokens  int64 `json:"reasoning_tokens" cbor:"5,keyasint,omitempty"`
}

// Add adds o to u.
func (u *Usage) Add(o Usage) {
	u.InputTokens += o.InputTokens
	u.OutputTokens += o.OutputTokens
	u.CacheReadTokens += o.CacheReadTokens
	u.CacheWriteTokens += o.CacheWriteTokens
	u.ReasoningTokens += o.ReasoningTokens
}

// StatusEvent is a record of the turn-status topic: tool:status or model:delta. Best effort, in no order with the others.
type StatusEvent struct {
	Envelope
	Step     *int32 `json:"step,omitempty"`
	Position *int32 `json:"position,omitempty"`
	Text     string `json:"text"`
	Index    *int32 `json:"index,omitempty"`
}
