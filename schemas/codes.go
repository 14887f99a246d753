package schemas

import "slices"

// Code is the stable reason of an error, a result or a refusal. Codes are API: new ones may be added, none changes its
// meaning.
type Code string

// Codes of a call, in the `code` of tool:result.
const (
	CodeUnknownTool      Code = "unknown_tool"
	CodeInvalidArguments Code = "invalid_arguments"
	CodeToolError        Code = "tool_error"
	CodeToolFatal        Code = "tool_fatal"
	CodeToolPoison       Code = "tool_poison"
	CodeToolPanic        Code = "tool_panic"
	CodeToolRefused      Code = "tool_refused"
	CodeTimeout          Code = "timeout"
	CodeInvalidOutput    Code = "invalid_output"
	CodeResultTooLarge   Code = "result_too_large"
	CodeNotExecuted      Code = "not_executed"
	CodeIndeterminate    Code = "indeterminate"
	CodeRepeatRefused    Code = "repeat_refused"
	CodeNotBegun         Code = "not_begun"
)

// Codes of a turn, in the `code` of turn:end.
const (
	CodeLimitExceeded        Code = "limit_exceeded"
	CodeDeadlineExceeded     Code = "deadline_exceeded"
	CodeModelRefused         Code = "model_refused"
	CodeModelUnavailable     Code = "model_unavailable"
	CodeModelInvalidResponse Code = "model_invalid_response"
	CodeToolRegistration     Code = "tool_registration"
	CodeReplayInputChanged   Code = "replay_input_changed"
	CodeUnknownAgent         Code = "unknown_agent"
	CodeCancelled            Code = "cancelled"
	CodeCrashLoop            Code = "crash_loop"
	CodeOutcomeUnknown       Code = "outcome_unknown"
	CodeToolFailed           Code = "tool_failed"
	CodeInternal             Code = "internal"
)

// Reasons of a dead letter, in the lathe_reason header and in the `code` of turn:rejected.
const (
	CodeUndecodable       Code = "undecodable"
	CodeSchemaUnknown     Code = "schema_unknown"
	CodeInvalidTurn       Code = "invalid_turn"
	CodeKeyMismatch       Code = "key_mismatch"
	CodePartitionMismatch Code = "partition_mismatch"
	CodeConflict          Code = "conflict"
	CodeTooLarge          Code = "too_large"
	CodeTombstone         Code = "tombstone"
)

// DeadLetter reports whether c is the reason of a dead letter: the record can never be accepted as it is.
func (c Code) DeadLetter() bool {
	return slices.Contains([]Code{
		CodeUndecodable, CodeSchemaUnknown, CodeInvalidTurn, CodeKeyMismatch, CodePartitionMismatch, CodeConflict,
		CodeTooLarge, CodeTombstone, CodeUnknownAgent,
	}, c)
}

// Event types, the `type` of every record on the output topics.
const (
	TypeTurnStart    = "turn:start"
	TypeTurnStep     = "turn:step"
	TypeTurnEnd      = "turn:end"
	TypeTurnRejected = "turn:rejected"
	TypeToolStart    = "tool:start"
	TypeToolResult   = "tool:result"
	TypeToolStatus   = "tool:status"
	TypeModelDelta   = "model:delta"
)

// Types of a turn event, the input.
const (
	InputTurn   = "turn"
	InputCancel = "cancel"
)

// Status of a call, in tool:result.
const (
	StatusOK             = "ok"
	StatusError          = "error"
	StatusDenied         = "denied"
	StatusSkipped        = "skipped"
	StatusOutcomeUnknown = "outcome_unknown"
	StatusIndeterminate  = "indeterminate"
)

// Status of a turn, in turn:end, beside StatusOutcomeUnknown and StatusIndeterminate.
const (
	StatusCompleted = "completed"
	StatusFailed    = "failed"
	StatusCancelled = "cancelled"
)

// Finish reasons of a model response, in turn:step.
const (
	FinishStop          = "stop"
	FinishToolCall      = "tool_call"
	FinishLength        = "length"
	FinishContentFilter = "content_filter"
	FinishError         = "error"
)

// Effect is what a tool may do to the world outside.
type Effect string

// The effects of a tool.
const (
	EffectNone  Effect = "none"
	EffectRead  Effect = "read"
	EffectWrite Effect = "write"
	EffectHost  Effect = "host"
)

// Idempotency says whether a call whose outcome is unknown may run again under its key.
type Idempotency string

// The two idempotencies.
const (
	SafeToRetry Idempotency = "safe_to_retry"
	AtMostOnce  Idempotency = "at_most_once"
)
