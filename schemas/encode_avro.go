package schemas

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// The functions here turn events into what goavro takes: maps, with each value of a union under its branch's name.

func branch(name string, v any) any { return map[string]any{name: v} }

// recordKey is the branch name of a record of ours.
func recordKey(name string) string { return goavroPrefix + "run.lathe.v1." + name }

func optString(s string) any {
	if s == "" {
		return nil
	}
	return branch("string", s)
}

func optLong(v *int64) any {
	if v == nil {
		return nil
	}
	return branch("long", *v)
}

func optInt(v *int32) any {
	if v == nil {
		return nil
	}
	return branch("int", *v)
}

func optBoolean(v *bool) any {
	if v == nil {
		return nil
	}
	return branch("boolean", *v)
}

// optArray is absent when items is nil or empty.
func optArray[T any](items []T, convert func(item *T) any) any {
	if len(items) == 0 {
		return nil
	}
	out := make([]any, len(items))
	for i := range items {
		out[i] = convert(&items[i])
	}
	return branch("array", out)
}

// optStringArray is absent only when items is nil.
func optStringArray(items []string) any {
	if items == nil {
		return nil
	}
	return branch("array", anyStrings(items))
}

func anyStrings(items []string) []any {
	out := make([]any, len(items))
	for i, s := range items {
		out[i] = s
	}
	return out
}

func nativeMap(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// rawFaults turns free-form JSON into strings and keeps the first that is no JSON.
type rawFaults struct{ err error }

func (f *rawFaults) text(name string, raw json.RawMessage) string {
	if _, err := checkRaw(raw); err != nil && f.err == nil {
		f.err = fmt.Errorf("%s is no JSON: %w", name, err)
	}
	return string(raw)
}

func (f *rawFaults) opt(name string, raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return branch("string", f.text(name, raw))
}

func (e *Envelope) native(out map[string]any) map[string]any {
	out["event_id"] = e.EventID
	out["type"] = e.Type
	out["seq"] = optLong(e.Seq)
	out["turn_id"] = e.TurnID
	out["session_id"] = e.SessionID
	out["agent"] = e.Agent
	out["at"] = e.At.UnixMilli()
	out["worker"] = e.Worker
	out["schema_version"] = e.SchemaVersion
	out["metadata"] = nativeMap(e.Metadata)
	return out
}

func nativeToolEvent(ev *ToolEvent, faults *rawFaults) map[string]any {
	return ev.native(map[string]any{
		"step": optInt(ev.Step), "position": optInt(ev.Position),
		"id": optString(ev.ID), "call_id": optString(ev.CallID),
		"idempotency_key": ev.IdempotencyKey, "tool": ev.Tool,
		"tool_version": optString(ev.ToolVersion), "effect": optString(string(ev.Effect)),
		"input":  faults.opt("input", ev.Input),
		"status": optString(ev.Status), "code": optString(string(ev.Code)), "message": optString(ev.Message),
		"output": faults.opt("output", ev.Output), "output_bytes": optLong(ev.OutputBytes),
		"cached": optBoolean(ev.Cached), "started": optBoolean(ev.Started), "attempts": optInt(ev.Attempts),
		"duration_ms": optLong(ev.DurationMS), "cost_micros": optLong(ev.CostMicros),
	})
}

func nativeTurnOutput(ev *TurnOutput, faults *rawFaults) map[string]any {
	out := ev.native(map[string]any{
		"model": optString(ev.Model), "provider": optString(ev.Provider),
		"topic": optString(ev.Topic), "partition": optInt(ev.Partition), "offset": optLong(ev.Offset),
		"step": optInt(ev.Step), "text": nil, "finish_reason": optString(ev.FinishReason),
		"status": optString(ev.Status), "code": optString(string(ev.Code)), "message": optString(ev.Message),
		"output": faults.opt("output", ev.Output),
		"steps":  optInt(ev.Steps), "tool_calls": optInt(ev.ToolCalls), "workers": optInt(ev.Workers),
		"usage": nil, "cost_micros": optLong(ev.CostMicros), "duration_ms": optLong(ev.DurationMS),
	})
	if ev.Text != nil {
		out["text"] = branch("string", *ev.Text)
	}
	if u := ev.Usage; u != nil {
		out["usage"] = branch(recordKey("Usage"), map[string]any{
			"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens, "cache_read_tokens": u.CacheReadTokens,
			"cache_write_tokens": u.CacheWriteTokens, "reasoning_tokens": u.ReasoningTokens,
		})
	}
	out["tools"] = optArray(ev.Tools, func(t *OfferedTool) any {
		return map[string]any{"name": t.Name, "version": t.Version, "fingerprint": t.Fingerprint}
	})
	out["calls"] = optArray(ev.Calls, func(c *AskedCall) any {
		return map[string]any{"name": c.Name, "call_id": c.CallID, "arguments": faults.text("arguments", c.Arguments)}
	})
	out["results"] = optArray(ev.Results, func(r *BatchResult) any {
		return map[string]any{
			"id": r.ID, "status": r.Status, "code": optString(string(r.Code)),
			"output": faults.opt("output", r.Output), "event_id": optString(r.EventID),
		}
	})
	return out
}

func nativeStatusEvent(ev *StatusEvent) map[string]any {
	return ev.native(map[string]any{
		"step": optInt(ev.Step), "position": optInt(ev.Position), "text": ev.Text, "index": optInt(ev.Index),
	})
}

// validStrings replaces what is no UTF-8 in the strings of a value, as the JSON form does: goavro writes any bytes.
func validStrings(v any) any {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return string([]rune(v))
		}
	case map[string]any:
		for k, item := range v {
			v[k] = validStrings(item)
			if !utf8.ValidString(k) {
				v[string([]rune(k))] = v[k]
				delete(v, k)
			}
		}
	case []any:
		for i, item := range v {
			v[i] = validStrings(item)
		}
	}
	return v
}
