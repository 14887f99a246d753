package schemas

import (
	"bytes"
	"sync"
)

// MarshalJSON returns the event as it stands on its topic.
func (ev ToolEvent) MarshalJSON() ([]byte, error) { return marshal(&ev) }

// MarshalJSON returns the event as it stands on its topic.
func (ev TurnOutput) MarshalJSON() ([]byte, error) { return marshal(&ev) }

// MarshalJSON returns the event as it stands on its topic.
func (ev StatusEvent) MarshalJSON() ([]byte, error) { return marshal(&ev) }

// members is what writes the members of its JSON object.
type members interface{ members(o *jsonObject) }

// objects are those that nobody writes right now, with the room of what was written.
var objects sync.Pool //nolint:gochecknoglobals // It is room and no state.

// marshal writes an object where others were written before and copies it from there, so that it has no more memory than bytes.
func marshal(v members) ([]byte, error) { return marshalTo(v, nil) }

// marshalTo is the same onto what room gives, which must have room for n bytes more; nil makes memory of its own.
func marshalTo(v members, room func(n int) []byte) ([]byte, error) {
	o := spareObject()
	defer objects.Put(o)
	o.write(v)
	if o.err != nil {
		return nil, o.err
	}
	if room == nil {
		return bytes.Clone(o.b), nil
	}
	return append(room(len(o.b)), o.b...), nil
}

// spareObject takes one of objects, or makes one.
func spareObject() *jsonObject {
	if o, ok := objects.Get().(*jsonObject); ok {
		*o = jsonObject{b: o.b[:0]}
		return o
	}
	return &jsonObject{}
}

// write writes the outermost object.
func (o *jsonObject) write(v members) {
	o.b = append(o.b, '{')
	v.members(o)
	o.close()
}

func (e *Envelope) members(o *jsonObject) {
	o.str("event_id", e.EventID)
	o.str("type", e.Type)
	o.optInt64("seq", e.Seq)
	o.str("turn_id", e.TurnID)
	o.str("session_id", e.SessionID)
	o.str("agent", e.Agent)
	o.time("at", e.At)
	o.str("worker", e.Worker)
	o.int("schema_version", int64(e.SchemaVersion))
	o.optStrings("metadata", e.Metadata)
}

func (ev *ToolEvent) members(o *jsonObject) {
	ev.Envelope.members(o)
	o.optInt32("step", ev.Step)
	o.optInt32("position", ev.Position)
	o.optStr("id", ev.ID)
	o.optStr("call_id", ev.CallID)
	o.str("idempotency_key", ev.IdempotencyKey)
	o.str("tool", ev.Tool)
	o.optStr("tool_version", ev.ToolVersion)
	o.optStr("effect", string(ev.Effect))
	o.optRaw("input", ev.Input)
	o.optStr("status", ev.Status)
	o.optStr("code", string(ev.Code))
	o.optStr("message", ev.Message)
	o.optRaw("output", ev.Output)
	o.optInt64("output_bytes", ev.OutputBytes)
	o.optBool("cached", ev.Cached)
	o.optBool("started", ev.Started)
	o.optInt32("attempts", ev.Attempts)
	o.optInt64("duration_ms", ev.DurationMS)
	o.optInt64("cost_micros", ev.CostMicros)
}

func (ev *TurnOutput) members(o *jsonObject) {
	ev.Envelope.members(o)
	o.optStr("model", ev.Model)
	o.optStr("provider", ev.Provider)
	if len(ev.Tools) > 0 {
		appendArray(o, "tools", ev.Tools, appendOfferedTool)
	}
	o.optStr("topic", ev.Topic)
	o.optInt32("partition", ev.Partition)
	o.optInt64("offset", ev.Offset)
	o.optInt32("step", ev.Step)
	if ev.Text != nil {
		o.str("text", *ev.Text)
	}
	if len(ev.Calls) > 0 {
		appendArray(o, "calls", ev.Calls, appendAskedCall)
	}
	o.optStr("finish_reason", ev.FinishReason)
	o.optStr("status", ev.Status)
	o.optStr("code", string(ev.Code))
	o.optStr("message", ev.Message)
	o.optRaw("output", ev.Output)
	if len(ev.Results) > 0 {
		appendArray(o, "results", ev.Results, appendBatchResult)
	}
	o.optInt32("steps", ev.Steps)
	o.optInt32("tool_calls", ev.ToolCalls)
	o.optInt32("workers", ev.Workers)
	appendNested(o, "usage", ev.Usage, appendUsage)
	o.optInt64("cost_micros", ev.CostMicros)
	o.optInt64("duration_ms", ev.DurationMS)
}

func (ev *StatusEvent) members(o *jsonObject) {
	ev.Envelope.members(o)
	o.optInt32("step", ev.Step)
	o.optInt32("position", ev.Position)
	o.str("text", ev.Text)
	o.optInt32("index", ev.Index)
}

func appendOfferedTool(o *jsonObject, t *OfferedTool) {
	o.str("name", t.Name)
	o.str("version", t.Version)
	o.str("fingerprint", t.Fingerprint)
}

func appendAskedCall(o *jsonObject, c *AskedCall) {
	o.str("name", c.Name)
	o.str("call_id", c.CallID)
	o.raw("arguments", c.Arguments)
}

func appendBatchResult(o *jsonObject, r *BatchResult) {
	o.str("id", r.ID)
	o.str("status", r.Status)
	o.optStr("code", string(r.Code))
	o.optRaw("output", r.Output)
	o.optStr("event_id", r.EventID)
}

func appendUsage(o *jsonObject, u *Usage) {
	o.int("input_tokens", u.InputTokens)
	o.int("output_tokens", u.OutputTokens)
	o.int("cache_read_tokens", u.CacheReadTokens)
	o.int("cache_write_tokens", u.CacheWriteTokens)
	o.int("reasoning_tokens", u.ReasoningTokens)
}
