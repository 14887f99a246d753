package schemas

import (
	"encoding/json"
	"strings"
	"testing"
)

func benchEvents() map[string]any {
	start, step, end, result := sampleTurnStart(), sampleTurnStep(), sampleTurnEnd(), sampleToolResult()
	end.Results = nil
	end.Output, _ = json.Marshal(strings.Repeat("All is well. ", 38))
	return map[string]any{
		TypeTurnStart: start, TypeTurnStep: step, TypeTurnEnd: end, TypeToolStart: sampleToolStart(), TypeToolResult: result,
		TypeModelDelta: sampleStatus(),
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, w := range wires()[:3] {
		for typ, ev := range benchEvents() {
			b.Run(w.name+"/"+typ, func(b *testing.B) {
				e, err := NewEncoder(w.enc, w.opts(recordOf(ev)))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.SetBytes(int64(len(encodeAny(b, e, ev))))
				for b.Loop() {
					encodeAny(b, e, ev)
				}
			})
		}
	}
}

// BenchmarkEncodeByReflection is what encoding/json takes for the same.
func BenchmarkEncodeByReflection(b *testing.B) {
	for typ, ev := range benchEvents() {
		b.Run(typ, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(byReflection(b, ev))))
			for b.Loop() {
				byReflection(b, ev)
			}
		})
	}
}

func benchTurn() *TurnEvent {
	return &TurnEvent{
		TurnID: "turn-000001", SessionID: "session-0001", Agent: "support",
		Messages: []Message{{Role: "user", Text: strings.Repeat("Where is my order? ", 27)}},
		Metadata: map[string]string{"tenant": "a"},
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, w := range wires()[:3] {
		b.Run(w.name, func(b *testing.B) {
			value, headers, err := EncodeTurnEvent(benchTurn(), w.enc, w.opts(RecordTurnEvent))
			if err != nil {
				b.Fatal(err)
			}
			d := NewDecoder(DecoderOptions{Registry: ourRegistry()})
			b.ReportAllocs()
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if _, err := d.Decode(b.Context(), value, headers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeTurnEvent(b *testing.B) {
	for _, w := range wires()[:3] {
		b.Run(w.name, func(b *testing.B) {
			e, err := NewTurnEncoder(w.enc, w.opts(RecordTurnEvent))
			if err != nil {
				b.Fatal(err)
			}
			ev := benchTurn()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Encode(ev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
