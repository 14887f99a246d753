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
		if err := j.stepped(e, f, seq); err != nil {
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
		ev := j.callEvent(schemas.TypeToolStart, calls[i].Ref, &calls[i].Tool, calls[i].CallID, at, seq+int64(i))
		ev.Input = calls[i].Input
		if err := j.toolEvent(e, ev); err != nil {
			return err
		}
	}
	return nil
}

// envelope fills in what every event of the turn has. The event's seq is kept where the caller says.
func (j *Journal) envelope(env *schemas.Envelope, kind, place string, at time.Time, seq *int64) {
	a := j.accepted
	metadata, texts := a.Metadata, &j.mu.memory.texts
	if j.thrift == ThriftBare {
		metadata = nil
	}
	*env = schemas.Envelope{
		EventID: texts.join(a.TurnID, "/", kind, place), Type: kind, Seq: seq, TurnID: a.TurnID, SessionID: a.SessionID, Agent: a.AgentName,
		At: at, Worker: j.store.codec.cfg.Worker, SchemaVersion: schemas.Version, Metadata: metadata,
	}
}

func (j *Journal) startEvent(f *fact.Accepted, seq int64) *turnDraft {
	d := j.store.codec.drafts.turnDraft()
	d.seq = seq
	j.envelope(&d.Envelope, schemas.TypeTurnStart, "", f.At, &d.seq)
	for _, t := range j.agent.Tools {
		if !f.Narrowed || slices.Contains(f.Tools, t.Name) {
			d.offered = append(d.offered, schemas.OfferedTool{Name: t.Name, Version: t.Version, Fingerprint: t.Fingerprint})
		}
	}
	d.Model, d.Provider, d.Tools = j.agent.Model.Model, j.agent.Model.Provider, d.offered
	d.Topic, d.Partition, d.Offset = f.Origin.Topic, &f.Origin.Partition, &f.Origin.Offset
	return d
}

// stepped adds the turn:step of a response. The encoder looks whether arguments are JSON, as nearly all are, so they are looked at
// here only when it refuses the event.
func (j *Journal) stepped(e *statestore.Effect, f *fact.Responded, seq int64) error {
	err := j.turnEvent(e, j.stepEvent(f, seq, asIs))
	if err != nil {
		err = j.turnEvent(e, j.stepEvent(f, seq, asJSON))
	}
	return err
}

func (j *Journal) stepEvent(f *fact.Responded, seq int64, arguments func([]byte) json.RawMessage) *turnDraft {
	d := j.store.codec.drafts.turnDraft()
	d.seq, d.step, d.ms = seq, int32(f.Step), f.Duration.Milliseconds() //nolint:gosec // Steps are few.
	j.envelope(&d.Envelope, schemas.TypeTurnStep, "/"+strconv.Itoa(f.Step), f.At, &d.seq)
	d.Model, d.Provider, d.Step, d.Text, d.FinishReason = f.Model, f.Provider, &d.step, &f.Text, f.FinishReason
	d.Usage, d.CostMicros, d.DurationMS = &f.Usage, f.CostMicros, &d.ms
	for _, c := range f.Calls {
		d.asked = append(d.asked, schemas.AskedCall{Name: c.Name, CallID: c.CallID, Arguments: arguments(c.Arguments)})
	}
	d.Calls = d.asked
	return d
}

// asIs is b.
func asIs(b []byte) json.RawMessage { return b }

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

func (j *Journal) callEvent(kind string, ref fact.Ref, tool *fact.Tool, callID string, at time.Time, seq int64) *toolDraft {
	d := j.store.codec.drafts.toolDraft()
	d.seq, d.step, d.position = seq, int32(ref.Step), int32(ref.Position) //nolint:gosec // Steps and positions are few.
	key := j.mu.memory.texts.key(j.accepted.TurnID, ref)
	j.envelope(&d.Envelope, kind, key[len(j.accepted.TurnID):], at, &d.seq)
	d.Step, d.Position, d.CallID, d.IdempotencyKey = &d.step, &d.position, callID, key
	d.Tool, d.ToolVersion, d.Effect = tool.Name, tool.Version, tool.Effect
	return d
}

func (j *Journal) resultEvent(f *fact.Finished, seq int64) *toolDraft {
	d := j.callEvent(schemas.TypeToolResult, f.Ref, &f.Tool, f.CallID, f.At, seq)
	d.attempts, d.ms, d.started, d.size = int32(f.Attempts), f.Duration.Milliseconds(), f.Started, int64(len(f.Output)) //nolint:gosec // Attempts are few.
	d.Status, d.Code, d.Message, d.Output = f.Status, f.Code, j.message(f.Message), f.Output
	d.Cached, d.Started, d.Attempts, d.DurationMS, d.CostMicros = &d.cached, &d.started, &d.attempts, &d.ms, f.CostMicros
	if f.Output != nil {
		d.OutputBytes = &d.size
	}
	return d
}

func (j *Journal) endEvent(f *fact.Ended, seq int64) *turnDraft {
	d := j.store.codec.drafts.turnDraft()
	d.seq, d.ms = seq, f.Duration.Milliseconds()
	d.steps, d.calls, d.workers = int32(f.Steps), int32(f.ToolCalls), int32(f.Workers) //nolint:gosec // They are few.
	j.envelope(&d.Envelope, schemas.TypeTurnEnd, "", f.At, &d.seq)
	d.Status, d.Code, d.Message, d.Output = f.Status, f.Code, j.message(f.Message), f.Output
	d.Usage, d.CostMicros, d.DurationMS = &f.Usage, f.CostMicros, &d.ms
	d.Steps, d.ToolCalls, d.Workers = &d.steps, &d.calls, &d.workers
	return d
}

// message is a text that an event can do with less of.
func (j *Journal) message(text string) string {
	if j.thrift == ThriftBare && len(text) > thriftyMessage {
		return strings.ToValidUTF8(text[:thriftyMessage], "")
	}
	return text
}

// turnEvent writes a draft, and is done with it.
func (j *Journal) turnEvent(e *statestore.Effect, d *turnDraft) error {
	c := j.store.codec
	defer c.drafts.doneTurn(d)
	value, err := c.encodeTurn(&d.TurnOutput, j.mu.eventRoom)
	if err != nil {
		return err
	}
	return j.output(e, c.cfg.TurnTopic, &d.Envelope, value, c.turnHeaders)
}

func (j *Journal) toolEvent(e *statestore.Effect, d *toolDraft) error {
	c := j.store.codec
	defer c.drafts.doneTool(d)
	value, err := c.encodeTool(&d.ToolEvent, j.mu.eventRoom)
	if err != nil {
		return err
	}
	return j.output(e, c.cfg.ToolTopic, &d.Envelope, value, c.toolHeaders)
}

// roomEncoder is an encoder that can write an event into memory of its caller. Those of schemas are.
type roomEncoder interface {
	EncodeToolTo(ev *schemas.ToolEvent, room func(n int) []byte) ([]byte, error)
	EncodeTurnTo(ev *schemas.TurnOutput, room func(n int) []byte) ([]byte, error)
}

func (c *Codec) encodeTurn(ev *schemas.TurnOutput, room func(n int) []byte) ([]byte, error) {
	if enc, ok := c.cfg.TurnEncoder.(roomEncoder); ok {
		return enc.EncodeTurnTo(ev, room)
	}
	return c.cfg.TurnEncoder.EncodeTurn(ev)
}

func (c *Codec) encodeTool(ev *schemas.ToolEvent, room func(n int) []byte) ([]byte, error) {
	if enc, ok := c.cfg.ToolEncoder.(roomEncoder); ok {
		return enc.EncodeToolTo(ev, room)
	}
	return c.cfg.ToolEncoder.EncodeTool(ev)
}

func (j *Journal) output(e *statestore.Effect, topic string, env *schemas.Envelope, value []byte, fixed []statestore.Header) error {
	c := j.store.codec
	headers := c.headers(&j.mu.memory, env, fixed, j.mu.trace)
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
func (c *Codec) headers(m *memory, env *schemas.Envelope, fixed, trace []statestore.Header) []statestore.Header {
	own := m.small.take(len(env.EventID) + len(env.TurnID) + timeSize)
	own = append(append(own, env.EventID...), env.TurnID...)
	own = schemas.AppendTime(own, env.At)
	id, subject := len(env.EventID), len(env.EventID)+len(env.TurnID)
	hs := m.headers.take(6 + len(fixed) + len(trace))
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

// timeSize is the length of a time in an event.
const timeSize = len("2006-01-02T15:04:05.000Z")
