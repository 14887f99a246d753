package schemas

import (
	"context"
	"encoding/json"
	"time"
)

// OutputRecord is an event that was read from an output topic. Exactly one of the four is set.
type OutputRecord struct {
	Tool   *ToolEvent
	Turn   *TurnOutput
	Status *StatusEvent
	// Unknown is an event of a type that this release does not know: what every event carries, and no more.
	Unknown *Envelope
}

// Envelope returns what every event carries.
func (r *OutputRecord) Envelope() *Envelope {
	switch {
	case r.Tool != nil:
		return &r.Tool.Envelope
	case r.Turn != nil:
		return &r.Turn.Envelope
	case r.Status != nil:
		return &r.Status.Envelope
	}
	return r.Unknown
}

// maxOutputBytes bounds an output record. Workers write them, within the limits of their topics, so it is no fine one.
const maxOutputBytes = 64 << 20

// DecodeOutput reads a record of an output topic, for those who consume them. MaxBytes and MaxDepth are not about these.
// Errors are *Error.
func (d *Decoder) DecodeOutput(ctx context.Context, value []byte, headers []Header) (rec *OutputRecord, err error) {
	defer func() {
		if r := recover(); r != nil {
			rec, err = nil, panicError(r)
		}
	}()
	form, err := jsonLimits{bytes: maxOutputBytes, depth: maxFreeDepth + 8}.recognise(value, headers)
	if err != nil {
		return nil, err
	}
	if form.encoding == EncodingJSON {
		return outputFromJSON(form.payload)
	}
	m, record, err := d.outputs.decode(ctx, d.opts, form)
	if err != nil {
		return nil, err
	}
	return outputFromNative(m, record), nil
}

func outputFromJSON(b []byte) (*OutputRecord, error) {
	var typ string
	eachMember(b, func(key string, v []byte) {
		if key == "type" && v[0] == '"' {
			typ = unquoteJSON(v)
		}
	})
	rec := &OutputRecord{}
	var err error
	switch typ {
	case TypeToolStart, TypeToolResult:
		rec.Tool = &ToolEvent{}
		err = json.Unmarshal(b, rec.Tool)
	case TypeTurnStart, TypeTurnStep, TypeTurnEnd, TypeTurnRejected:
		rec.Turn = &TurnOutput{}
		err = json.Unmarshal(b, rec.Turn)
	case TypeToolStatus, TypeModelDelta:
		rec.Status = &StatusEvent{}
		err = json.Unmarshal(b, rec.Status)
	case "":
		return nil, Errorf(CodeUndecodable, "the record has no type")
	default:
		rec.Unknown = &Envelope{}
		err = json.Unmarshal(b, rec.Unknown)
	}
	if err != nil {
		// The cause names a field and a Go type, and may quote a value: it is for logs.
		return nil, &Error{Code: CodeUndecodable, Message: "the record is not the event that its type says", Err: err}
	}
	return rec, nil
}

func outputFromNative(m map[string]any, record Record) *OutputRecord {
	n := nativeReader{}
	env := Envelope{
		EventID: n.str(m, "event_id"), Type: n.str(m, "type"), Seq: optional[int64](m, "seq"),
		TurnID: n.str(m, "turn_id"), SessionID: n.str(m, "session_id"), Agent: n.str(m, "agent"),
		At:     time.UnixMilli(asInt(m["at"])).UTC(),
		Worker: n.str(m, "worker"), SchemaVersion: int(asInt(m["schema_version"])), Metadata: n.stringMap(m, "metadata"),
	}
	switch record {
	case RecordToolEvent:
		return &OutputRecord{Tool: n.toolEvent(m, env)}
	case RecordTurnOutput:
		return &OutputRecord{Turn: n.turnOutput(m, env)}
	case RecordStatusEvent:
		return &OutputRecord{Status: &StatusEvent{
			Envelope: env, Step: optional[int32](m, "step"), Position: optional[int32](m, "position"),
			Text: n.str(m, "text"), Index: optional[int32](m, "index"),
		}}
	case RecordTurnEvent:
	}
	return &OutputRecord{Unknown: &env}
}

func optional[T any](m map[string]any, key string) *T {
	v, ok := m[key].(T)
	if !ok {
		return nil
	}
	return &v
}

func (n *nativeReader) raw(m map[string]any, key string) json.RawMessage {
	s := optional[string](m, key)
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}

func (n *nativeReader) toolEvent(m map[string]any, env Envelope) *ToolEvent {
	return &ToolEvent{
		Envelope: env, Step: optional[int32](m, "step"), Position: optional[int32](m, "position"),
		ID: n.str(m, "id"), CallID: n.str(m, "call_id"), IdempotencyKey: n.str(m, "idempotency_key"),
		Tool: n.str(m, "tool"), ToolVersion: n.str(m, "tool_version"), Effect: Effect(n.str(m, "effect")),
		Input: n.raw(m, "input"), Status: n.str(m, "status"), Code: Code(n.str(m, "code")), Message: n.str(m, "message"),
		Output: n.raw(m, "output"), OutputBytes: optional[int64](m, "output_bytes"),
		Cached: optional[bool](m, "cached"), Started: optional[bool](m, "started"), Attempts: optional[int32](m, "attempts"),
		DurationMS: optional[int64](m, "duration_ms"), CostMicros: optional[int64](m, "cost_micros"),
	}
}

func (n *nativeReader) turnOutput(m map[string]any, env Envelope) *TurnOutput {
	return &TurnOutput{
		Envelope: env, Model: n.str(m, "model"), Provider: n.str(m, "provider"), Topic: n.str(m, "topic"),
		Partition: optional[int32](m, "partition"), Offset: optional[int64](m, "offset"),
		Step: optional[int32](m, "step"), Text: optional[string](m, "text"), FinishReason: n.str(m, "finish_reason"),
		Status: n.str(m, "status"), Code: Code(n.str(m, "code")), Message: n.str(m, "message"), Output: n.raw(m, "output"),
		Steps: optional[int32](m, "steps"), ToolCalls: optional[int32](m, "tool_calls"), Workers: optional[int32](m, "workers"),
		Usage: n.usage(m["usage"]), CostMicros: optional[int64](m, "cost_micros"), DurationMS: optional[int64](m, "duration_ms"),
		Tools: eachRecord(m, "tools", func(m map[string]any) OfferedTool {
			return OfferedTool{Name: n.str(m, "name"), Version: n.str(m, "version"), Fingerprint: n.str(m, "fingerprint")}
		}),
		Calls: eachRecord(m, "calls", func(m map[string]any) AskedCall {
			return AskedCall{Name: n.str(m, "name"), CallID: n.str(m, "call_id"), Arguments: n.raw(m, "arguments")}
		}),
		Results: eachRecord(m, "results", func(m map[string]any) BatchResult {
			return BatchResult{
				ID: n.str(m, "id"), Status: n.str(m, "status"), Code: Code(n.str(m, "code")),
				Output: n.raw(m, "output"), EventID: n.str(m, "event_id"),
			}
		}),
	}
}

func (n *nativeReader) usage(v any) *Usage {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	return &Usage{
		InputTokens: asInt(m["input_tokens"]), OutputTokens: asInt(m["output_tokens"]),
		CacheReadTokens: asInt(m["cache_read_tokens"]), CacheWriteTokens: asInt(m["cache_write_tokens"]),
		ReasoningTokens: asInt(m["reasoning_tokens"]),
	}
}

func eachRecord[T any](m map[string]any, key string, read func(m map[string]any) T) []T {
	list, _ := m[key].([]any)
	var out []T
	for _, v := range list {
		if item, ok := v.(map[string]any); ok {
			out = append(out, read(item))
		}
	}
	return out
}
