package schemas

// MarshalJSON returns the event as it stands on its topic.
func (ev ToolEvent) MarshalJSON() ([]byte, error) { return appendToolEvent(nil, &ev) }

// MarshalJSON returns the event as it stands on its topic.
func (ev TurnOutput) MarshalJSON() ([]byte, error) { return appendTurnOutput(nil, &ev) }

// MarshalJSON returns the event as it stands on its topic.
func (ev StatusEvent) MarshalJSON() ([]byte, error) { return appendStatusEvent(nil, &ev) }

func (e *Envelope) appendTo(o *jsonObject) {
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

// size guesses the bytes that the envelope takes in JSON, so that an event is mostly written without moving it, and little is left
// over. The numbers are the lengths of names and punctuation, and some room for numbers and escapes.
func (e *Envelope) size() int {
	n := 192 + len(e.EventID) + len(e.TurnID) + len(e.SessionID) + len(e.Agent) + len(e.Worker)
	for k, v := range e.Metadata {
		n += len(k) + len(v) + 8
	}
	return n
}

func appendToolEvent(dst []byte, ev *ToolEvent) ([]byte, error) {
	o := openObject(dst)
	ev.appendTo(&o)
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
	o.close()
	return o.b, o.err
}

func (ev *ToolEvent) size() int {
	n := ev.Envelope.size() + 128 + len(ev.ID) + len(ev.CallID) + len(ev.IdempotencyKey) + len(ev.Tool) + len(ev.ToolVersion) + len(ev.Input)
	if ev.Status != "" {
		n += 144 + len(ev.Code) + len(ev.Message) + len(ev.Output)
	}
	return n
}

func appendTurnOutput(dst []byte, ev *TurnOutput) ([]byte, error) {
	o := openObject(dst)
	ev.appendTo(&o)
	o.optStr("model", ev.Model)
	o.optStr("provider", ev.Provider)
	if len(ev.Tools) > 0 {
		appendArray(&o, "tools", ev.Tools, appendOfferedTool)
	}
	o.optStr("topic", ev.Topic)
	o.optInt32("partition", ev.Partition)
	o.optInt64("offset", ev.Offset)
	o.optInt32("step", ev.Step)
	if ev.Text != nil {
		o.str("text", *ev.Text)
	}
	if len(ev.Calls) > 0 {
		appendArray(&o, "calls", ev.Calls, appendAskedCall)
	}
	o.optStr("finish_reason", ev.FinishReason)
	o.optStr("status", ev.Status)
	o.optStr("code", string(ev.Code))
	o.optStr("message", ev.Message)
	o.optRaw("output", ev.Output)
	if len(ev.Results) > 0 {
		appendArray(&o, "results", ev.Results, appendBatchResult)
	}
	o.optInt32("steps", ev.Steps)
	o.optInt32("tool_calls", ev.ToolCalls)
	o.optInt32("workers", ev.Workers)
	appendNested(&o, "usage", ev.Usage, appendUsage)
	o.optInt64("cost_micros", ev.CostMicros)
	o.optInt64("duration_ms", ev.DurationMS)
	o.close()
	return o.b, o.err
}

func (ev *TurnOutput) size() int {
	n := ev.Envelope.size() + 64 + len(ev.Model) + len(ev.Provider) + len(ev.Topic) + len(ev.Code) + len(ev.Message) + len(ev.Output)
	if ev.Text != nil {
		n += 160 + len(*ev.Text) + len(*ev.Text)/16
	}
	if ev.Status != "" {
		n += 184
	}
	for i := range ev.Tools {
		n += 48 + len(ev.Tools[i].Name) + len(ev.Tools[i].Fingerprint)
	}
	for i := range ev.Calls {
		n += 48 + len(ev.Calls[i].Name) + len(ev.Calls[i].CallID) + len(ev.Calls[i].Arguments)
	}
	for i := range ev.Results {
		n += 128 + len(ev.Results[i].ID) + len(ev.Results[i].Output) + len(ev.Results[i].EventID)
	}
	return n
}

func appendStatusEvent(dst []byte, ev *StatusEvent) ([]byte, error) {
	o := openObject(dst)
	ev.appendTo(&o)
	o.optInt32("step", ev.Step)
	o.optInt32("position", ev.Position)
	o.str("text", ev.Text)
	o.optInt32("index", ev.Index)
	o.close()
	return o.b, o.err
}

func (ev *StatusEvent) size() int { return ev.Envelope.size() + 96 + len(ev.Text) + len(ev.Text)/16 }

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
