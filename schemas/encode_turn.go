package schemas

import (
	"encoding/json"
	"errors"
	"fmt"
)

// MarshalJSON returns the event as it stands on its topic.
func (ev TurnEvent) MarshalJSON() ([]byte, error) { return marshal(&ev) }

// MarshalJSON returns the message with its text or its parts under `content`.
func (m Message) MarshalJSON() ([]byte, error) { return marshal(&m) }

// UnmarshalJSON reads a message whose `content` is a string or an array of parts.
func (m *Message) UnmarshalJSON(b []byte) error {
	var raw struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	*m = Message{Role: raw.Role}
	var err error
	switch c := raw.Content; {
	case len(c) == 0 || string(c) == "null":
	case c[0] == '"':
		err = json.Unmarshal(c, &m.Text)
	case c[0] == '[':
		err = json.Unmarshal(c, &m.Parts)
	default:
		err = errors.New("it is neither a string nor an array of parts")
	}
	if err != nil {
		return fmt.Errorf("read a message's content: %w", err)
	}
	return nil
}

// members writes the event without what is absent or equal to its default. Here and below, members are written in the order of
// their names, so that the same functions write the canonical form that is hashed.
func (ev *TurnEvent) members(o *jsonObject) {
	o.optStr("agent", ev.Agent)
	appendNested(o, "budget", ev.Budget, appendBudget)
	if len(ev.Calls) > 0 {
		appendArray(o, "calls", ev.Calls, appendPlannedCall)
	}
	if ev.Deadline != nil {
		o.time("deadline", *ev.Deadline)
	}
	appendNested(o, "groups", ev.Groups, appendGroups)
	if len(ev.Messages) > 0 {
		appendArray(o, "messages", ev.Messages, appendMessage)
	}
	o.optStrings("metadata", ev.Metadata)
	o.optRaw("output_schema", ev.OutputSchema)
	o.optStr("reason", ev.Reason)
	appendNested(o, "scope", ev.Scope, appendScope)
	o.optStr("session_id", ev.SessionID)
	if ev.Tools != nil {
		o.list("tools", ev.Tools)
	}
	o.str("turn_id", ev.TurnID)
	if ev.Type != InputTurn {
		o.optStr("type", ev.Type)
	}
}

func appendMessage(o *jsonObject, m *Message) { m.members(o) }

func (m *Message) members(o *jsonObject) {
	if m.Parts == nil {
		o.str("content", m.Text)
	} else {
		appendArray(o, "content", m.Parts, appendPart)
	}
	o.str("role", m.Role)
}

func appendPart(o *jsonObject, p *Part) {
	o.optStr("data", p.Data)
	o.optStr("media_type", p.MediaType)
	o.optStr("text", p.Text)
	o.str("type", p.Type)
	o.optStr("url", p.URL)
	o.optRaw("value", p.Value)
}

func appendPlannedCall(o *jsonObject, c *PlannedCall) {
	o.str("id", c.ID)
	o.raw("input", c.Input)
	o.str("tool", c.Tool)
}

func appendGroups(o *jsonObject, g *Groups) {
	if len(g.Disable) > 0 {
		o.list("disable", g.Disable)
	}
	if len(g.Enable) > 0 {
		o.list("enable", g.Enable)
	}
}

func appendScope(o *jsonObject, s *Scope) {
	if s.Permissions != nil {
		o.list("permissions", s.Permissions)
	}
	o.optStr("principal_id", s.PrincipalID)
	o.optStr("project_id", s.ProjectID)
}

func appendBudget(o *jsonObject, b *Budget) {
	o.optInt64("cost_micros", b.CostMicros)
	o.optInt64("tokens", b.Tokens)
}

// nativeTurnEvent returns the event as goavro takes it.
func nativeTurnEvent(ev *TurnEvent, faults *rawFaults) map[string]any {
	out := map[string]any{
		"type": orDefault(ev.Type, InputTurn), "turn_id": ev.TurnID,
		"session_id": optString(ev.SessionID), "agent": optString(ev.Agent),
		"metadata": nativeMap(ev.Metadata), "deadline": nil,
		"output_schema": faults.opt("output_schema", ev.OutputSchema), "reason": optString(ev.Reason),
		"tools": optStringArray(ev.Tools),
	}
	if ev.Deadline != nil {
		out["deadline"] = branch("long", ev.Deadline.UnixMilli())
	}
	out["messages"] = optArray(ev.Messages, func(m *Message) any { return nativeMessage(m, faults) })
	out["calls"] = optArray(ev.Calls, func(c *PlannedCall) any {
		return map[string]any{"id": c.ID, "tool": c.Tool, "input": faults.text("input", c.Input)}
	})
	if g := ev.Groups; g != nil {
		out["groups"] = branch(recordKey("Groups"), map[string]any{"enable": anyStrings(g.Enable), "disable": anyStrings(g.Disable)})
	}
	if s := ev.Scope; s != nil {
		out["scope"] = branch(recordKey("Scope"), map[string]any{
			"principal_id": optString(s.PrincipalID), "project_id": optString(s.ProjectID),
			"permissions": optStringArray(s.Permissions),
		})
	}
	if b := ev.Budget; b != nil {
		out["budget"] = branch(recordKey("Budget"), map[string]any{
			"cost_micros": optLong(b.CostMicros), "tokens": optLong(b.Tokens),
		})
	}
	for _, k := range []string{"groups", "scope", "budget"} {
		if _, ok := out[k]; !ok {
			out[k] = nil
		}
	}
	return out
}

func nativeMessage(m *Message, faults *rawFaults) any {
	out := map[string]any{"role": m.Role, "content": nil, "parts": nil}
	if m.Parts == nil {
		out["content"] = branch("string", m.Text)
		return out
	}
	parts := make([]any, len(m.Parts))
	for i := range m.Parts {
		p := &m.Parts[i]
		parts[i] = map[string]any{
			"type": p.Type, "text": optString(p.Text), "value": faults.opt("value", p.Value),
			"url": optString(p.URL), "data": optString(p.Data), "media_type": optString(p.MediaType),
		}
	}
	out["parts"] = branch("array", parts)
	return out
}

func orDefault(v, def string) string {
	if v == "" {
		return def
	}
	return v
}
