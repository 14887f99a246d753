package schemas

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sampleTime has a last digit of its milliseconds that is not 0, so that encoding/json writes it with as many digits as we.
var sampleTime = time.Date(2026, 3, 4, 5, 6, 7, 123e6, time.UTC)

func sampleEnvelope(typ string) Envelope {
	return Envelope{
		EventID: "t-1/" + typ + "/0/1", Type: typ, Seq: new(int64(3)), TurnID: "t-1", SessionID: "s-1", Agent: "support",
		At: sampleTime, Worker: "worker-0", SchemaVersion: Version, Metadata: map[string]string{"tenant": "a"},
	}
}

func sampleToolStart() *ToolEvent {
	return &ToolEvent{
		Envelope: sampleEnvelope(TypeToolStart), Step: new(int32(0)), Position: new(int32(1)), CallID: "call_1",
		IdempotencyKey: "t-1/0/1", Tool: "refund", ToolVersion: "1", Effect: EffectWrite,
		Input: json.RawMessage(`{"amount":12.50,"order":"A-1"}`),
	}
}

func sampleToolResult() *ToolEvent {
	ev := sampleToolStart()
	ev.Envelope = sampleEnvelope(TypeToolResult)
	ev.Input = nil
	ev.Status, ev.Output, ev.OutputBytes = StatusOK, json.RawMessage(`{"state":"`+strings.Repeat("refunded ", 30)+`"}`), new(int64(283))
	ev.Cached, ev.Started, ev.Attempts = new(false), new(true), new(int32(1))
	ev.DurationMS, ev.CostMicros = new(int64(41)), new(int64(0))
	return ev
}

func sampleTurnStart() *TurnOutput {
	return &TurnOutput{
		Envelope: sampleEnvelope(TypeTurnStart), Model: "gpt-5-mini", Provider: "openai",
		Tools: []OfferedTool{{"lookup_order", "1", strings.Repeat("a1", 16)}, {"refund", "2", strings.Repeat("b2", 16)}},
		Topic: "lathe.turns", Partition: new(int32(0)), Offset: new(int64(0)),
	}
}

func sampleTurnStep() *TurnOutput {
	return &TurnOutput{
		Envelope: sampleEnvelope(TypeTurnStep), Model: "gpt-5-mini", Provider: "openai", Step: new(int32(0)),
		Text: new(strings.Repeat("I look it up.\n", 35)), FinishReason: FinishToolCall,
		Calls: []AskedCall{{"lookup_order", "call_1", json.RawMessage(`{"id":"A-1"}`)}},
		Usage: &Usage{812, 96, 512, 0, 64}, CostMicros: new(int64(395)), DurationMS: new(int64(512)),
	}
}

func sampleTurnEnd() *TurnOutput {
	return &TurnOutput{
		Envelope: sampleEnvelope(TypeTurnEnd), Status: StatusFailed, Code: CodeLimitExceeded, Message: "steps: 16",
		Output:  json.RawMessage(`"Your refund is on its way."`),
		Results: []BatchResult{{ID: "a", Status: StatusOK, Output: json.RawMessage(`1`)}, {ID: "b", Status: StatusError, Code: CodeTimeout, EventID: "e"}},
		Steps:   new(int32(4)), ToolCalls: new(int32(3)), Workers: new(int32(1)),
		Usage: &Usage{}, CostMicros: new(int64(1200)), DurationMS: new(int64(2100)),
	}
}

func sampleStatus() *StatusEvent {
	ev := &StatusEvent{Envelope: sampleEnvelope(TypeModelDelta), Step: new(int32(1)), Position: new(int32(0)), Text: "Your ", Index: new(int32(7))}
	ev.Seq = nil
	return ev
}

func sampleTurn() *TurnEvent {
	return &TurnEvent{
		Type: InputTurn, TurnID: "t-1", SessionID: "s-1", Agent: "support",
		Messages: []Message{
			{Role: "system", Text: "Answer briefly."},
			{Role: "user", Parts: []Part{
				{Type: "text", Text: "Where is \"A-1\"? \u2028 é 😀"},
				{Type: "json", Value: json.RawMessage(`{"b":[1,2.50,1e3],"a":null}`)},
				{Type: "image", Data: "aGk=", MediaType: "image/png"},
				{Type: "image", URL: "https://example.org/a.png"},
			}},
		},
		Tools: []string{"refund"}, Scope: &Scope{PrincipalID: "u-7", ProjectID: "shop"},
		Metadata: map[string]string{"tenant": "a"}, Deadline: new(sampleTime),
		OutputSchema: json.RawMessage(`{"type":"object"}`), Reason: "none",
	}
}

// outputs returns one event of each kind, and some with next to nothing in them.
func outputs() map[string]any {
	return map[string]any{
		"tool start": sampleToolStart(), "tool result": sampleToolResult(), "turn start": sampleTurnStart(),
		"turn step": sampleTurnStep(), "turn end": sampleTurnEnd(), "status": sampleStatus(),
		"tool with nothing":   &ToolEvent{Envelope: Envelope{Type: TypeToolResult, At: sampleTime}},
		"turn with nothing":   &TurnOutput{Envelope: Envelope{Type: TypeTurnRejected, At: sampleTime}},
		"status with nothing": &StatusEvent{Envelope: Envelope{Type: TypeToolStatus, At: sampleTime}},
		"step without text":   &TurnOutput{Envelope: Envelope{Type: TypeTurnStep, At: sampleTime}, Text: new("")},
	}
}

func encodeAny(tb testing.TB, e Encoder, ev any) []byte {
	tb.Helper()
	var b []byte
	var err error
	switch ev := ev.(type) {
	case *ToolEvent:
		b, err = e.EncodeTool(ev)
	case *TurnOutput:
		b, err = e.EncodeTurn(ev)
	case *StatusEvent:
		b, err = e.EncodeStatus(ev)
	default:
		tb.Fatalf("no event: %T", ev)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func recordOf(ev any) Record {
	switch ev.(type) {
	case *ToolEvent:
		return RecordToolEvent
	case *TurnOutput:
		return RecordTurnOutput
	case *StatusEvent:
		return RecordStatusEvent
	}
	return RecordTurnEvent
}

func (r *OutputRecord) event() any {
	switch {
	case r.Tool != nil:
		return r.Tool
	case r.Turn != nil:
		return r.Turn
	case r.Status != nil:
		return r.Status
	}
	return r.Unknown
}

// randomString draws texts in which everything that JSON escapes is common.
func randomString(r *rand.Rand) string {
	const alphabet = "ab\"\\\n\r\t\b\f\x00\x1f\x7f/<>&\u2028\u2029é😀\ufffd"
	runes := []rune(alphabet)
	var b strings.Builder
	for range r.IntN(12) {
		b.WriteRune(runes[r.IntN(len(runes))])
	}
	return b.String()
}

// sameJSON compares free-form values without the white space between their tokens.
func sameJSON() cmp.Option {
	return cmp.Comparer(func(a, b json.RawMessage) bool {
		var x, y bytes.Buffer
		if len(a) == 0 || len(b) == 0 {
			return len(a) == len(b)
		}
		return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
	})
}

func wantEqual(t *testing.T, got, want any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
