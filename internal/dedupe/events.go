package dedupe

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// events adds the output events of a fact to an effect; the first has the given seq.
func (j *Journal) events(e *statestore.Effect, f fact.Fact, seq int64) error {
	switch f := f.(type) {
	case *fact.Accepted:
		return j.turnEvent(e, j.startEvent(f, seq))
	case *fact.Responded:
		if err := j.turnEvent(e, j.stepEvent(f, seq)); err != nil {
			return err
		}
		return j.starts(e, f.Wave, f.At, seq+1)
	case *fact.Began:
		if f.Again {
			return nil
		}
		return j.starts(e, f.Calls, f.At, seq)
	case *fact.Finished:
		return j.toolEvent(e, j.resultEvent(f, seq))
	case *fact.Ended:
		return j.turnEvent(e, j.endEvent(f, seq))
	case *fact.NotBegun, *fact.Cancelled, *fact.Restarted:
	}
	return nil
}

func (j *Journal) starts(e *statestore.Effect, calls []fact.Call, at time.Time, seq int64) error {
	for i := range calls {
		ev := j.callEvent(schemas.TypeToolStart, calls[i].Ref, calls[i].Tool, calls[i].CallID, at, seq+int64(i))
		ev.Input = calls[i].Input
		if err := j.toolEvent(e, ev); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) envelope(kind, place string, at time.Time, seq int64) schemas.Envelope {
	a := j.accepted
	metadata := a.Metadata
	if j.thrift == ThriftBare {
		metadata = nil
	}
	return schemas.Envelope{
		EventID: a.TurnID + "/" + kind + place, Type: kind, Seq: &seq, TurnID: a.TurnID, SessionID: a.SessionID, Agent: a.AgentName,
		At: at, Worker: j.store.codec.cfg.Worker, SchemaVersion: schemas.Version, Metadata: metadata,
	}
}

func (j *Journal) startEvent(f *fact.Accepted, seq int64) *schemas.TurnOutput {
	offered := make([]schemas.OfferedTool, 0, len(j.agent.Tools))
	for _, t := range j.agent.Tools {
		if !f.Narrowed || slices.Contains(f.Tools, t.Name) {
			offered = append(offered, schemas.OfferedTool{Name: t.Name, Version: t.Version, Fingerprint: t.Fingerprint})
		}
	}
	return &schemas.TurnOutput{
		Envelope: j.envelope(schemas.TypeTurnStart, "", f.At, seq),
		Model:    j.agent.Model.Model, Provider: j.agent.Model.Provider, Tools: offered,
		Topic: f.Origin.Topic, Partition: &f.Origin.Partition, Offset: &f.Origin.Offset,
	}
}

func (j *Journal) stepEvent(f *fact.Responded, seq int64) *schemas.TurnOutput {
	step, ms := int32(f.Step), f.Duration.Milliseconds() //nolint:gosec // Steps are few.
	ev := &schemas.TurnOutput{
		Envelope: j.envelope(schemas.TypeTurnStep, "/"+strconv.Itoa(f.Step), f.At, seq),
		Model:    f.Model, Provider: f.Provider, Step: &step, Text: &f.Text, FinishReason: f.FinishReason,
		Usage: &f.Usage, CostMicros: f.CostMicros, DurationMS: &ms,
	}
	if len(f.Calls) > 0 {
		ev.Calls = make([]schemas.AskedCall, len(f.Calls))
		for i, c := range f.Calls {
			ev.Calls[i] = schemas.AskedCall{Name: c.Name, CallID: c.CallID, Arguments: asJSON(c.Arguments)}
		}
	}
	return ev
}

// asJSON is b when it is JSON, else the JSON string of it: a model may write anything.
func asJSON(b []byte) json.RawMessage {
	if json.Valid(b) {
		return b
	}
	s, err := json.Marshal(string(b))
	if err != nil {
		return json.RawMessage("null")
	}
	return s
}

func (j *Journal) callEvent(kind string, ref fact.Ref, tool fact.Tool, callID string, at time.Time, seq int64) *schemas.ToolEvent {
	step, position := int32(ref.Step), int32(ref.Position) //nolint:gosec // Steps and positions are few.
	key := ref.Key(j.accepted.TurnID)
	return &schemas.ToolEvent{
		Envelope: j.envelope(kind, key[len(j.accepted.TurnID):], at, seq),
		Step:     &step, Position: &position, CallID: callID, IdempotencyKey: key,
		Tool: tool.Name, ToolVersion: tool.Version, Effect: tool.Effect,
	}
}

func (j *Journal) resultEvent(f *fact.Finished, seq int64) *schemas.ToolEvent {
	ev := j.callEvent(schemas.TypeToolResult, f.Ref, f.Tool, f.CallID, f.At, seq)
	attempts, ms, cached, started, size := int32(f.Attempts), f.Duration.Milliseconds(), false, f.Started, int64(len(f.Output)) //nolint:gosec // Attempts are few.
	ev.Status, ev.Code, ev.Message, ev.Output = f.Status, f.Code, j.message(f.Message), f.Output
	ev.Cached, ev.Started, ev.Attempts, ev.DurationMS, ev.CostMicros = &cached, &started, &attempts, &ms, f.CostMicros
	if f.Output != nil {
		ev.OutputBytes = &size
	}
	return ev
}

func (j *Journal) endEvent(f *fact.Ended, seq int64) *schemas.TurnOutput {
	steps, calls, workers, ms := int32(f.Steps), int32(f.ToolCalls), int32(f.Workers), f.Duration.Milliseconds() //nolint:gosec // They are few.
	return &schemas.TurnOutput{
		Envelope: j.envelope(schemas.TypeTurnEnd, "", f.At, seq),
		Status:   f.Status, Code: f.Code, Message: j.message(f.Message), Output: f.Output, Usage: &f.Usage, CostMicros: f.CostMicros,
		Steps: &steps, ToolCalls: &calls, Workers: &workers, DurationMS: &ms,
	}
}

// message is a text that an event can do with less of.
func (j *Journal) message(text string) string {
	if j.thrift == ThriftBare && len(text) > thriftyMessage {
		return strings.ToValidUTF8(text[:thriftyMessage], "")
	}
	return text
}

func (j *Journal) turnEvent(e *statestore.Effect, ev *schemas.TurnOutput) error {
	c := j.store.codec
	value, err := c.cfg.TurnEncoder.EncodeTurn(ev)
	if err != nil {
		return err
	}
	return j.output(e, c.cfg.TurnTopic, &ev.Envelope, value, c.turnHeaders)
}

func (j *Journal) toolEvent(e *statestore.Effect, ev *schemas.ToolEvent) error {
	c := j.store.codec
	value, err := c.cfg.ToolEncoder.EncodeTool(ev)
	if err != nil {
		return err
	}
	return j.output(e, c.cfg.ToolTopic, &ev.Envelope, value, c.toolHeaders)
}

func (j *Journal) output(e *statestore.Effect, topic string, env *schemas.Envelope, value []byte, fixed []statestore.Header) error {
	c := j.store.codec
	headers := c.headers(env, fixed, j.mu.trace)
	size := len(j.key) + len(value)
	for i := range headers {
		size += len(headers[i].Key) + len(headers[i].Value)
	}
	if size > c.cfg.RecordBytes {
		return tooLarge("the event "+env.EventID, size, c.cfg.RecordBytes)
	}
	e.Outputs = append(e.Outputs, statestore.Output{Topic: topic, Key: j.key, Value: value, Partition: -1, Headers: headers})
	return nil
}

// headers are the CloudEvents attributes of an event (binary mode of the Kafka binding), what its encoding needs, and the
// trace context. The values that are the event's own share one piece of memory.
func (c *Codec) headers(env *schemas.Envelope, fixed, trace []statestore.Header) []statestore.Header {
	own := make([]byte, 0, len(env.EventID)+len(env.TurnID)+len(timeFormat))
	own = append(append(own, env.EventID...), env.TurnID...)
	own = env.At.UTC().AppendFormat(own, timeFormat)
	id, subject := len(env.EventID), len(env.EventID)+len(env.TurnID)
	hs := make([]statestore.Header, 0, 6+len(fixed)+len(trace))
	hs = append(hs,
		statestore.Header{Key: "ce_specversion", Value: c.specVersion},
		statestore.Header{Key: "ce_id", Value: own[:id:id]},
		statestore.Header{Key: "ce_type", Value: c.types[env.Type]},
		statestore.Header{Key: "ce_source", Value: c.source},
		statestore.Header{Key: "ce_subject", Value: own[id:subject:subject]},
		statestore.Header{Key: "ce_time", Value: own[subject:]},
	)
	hs = append(hs, fixed...)
	return append(hs, trace...)
}

// timeFormat is RFC 3339 in UTC with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"
