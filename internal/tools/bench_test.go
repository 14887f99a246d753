package tools

import (
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
)

func benchBound(b *testing.B) (*Bound, fact.Asked) {
	b.Helper()
	r, _ := newRuntime(b, Deps{})
	type result struct {
		ID   string `json:"id"`
		Note string `json:"note"`
	}
	note := strings.Repeat("x", 250)
	lookup := Define("lookup", func(_ *Context, in orderArgs) (result, error) { return result{in.OrderID, note}, nil }, reads())
	text := Define("text", func(_ *Context, _ orderArgs) (string, error) { return note, nil }, reads())
	bound := bindAll(b, r, AgentBinding{}, lookup, text)
	return bound, fact.Asked{Name: "lookup", CallID: "c", Arguments: []byte(`{"order_id":"A-1001","reason":null}`)}
}

func BenchmarkPrepare(b *testing.B) {
	bound, asked := benchBound(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, result := bound.Prepare(asked, fact.Ref{}, bound.Tools()); result != nil {
			b.Fatal(result.Message)
		}
	}
}

func BenchmarkExecute(b *testing.B) {
	bound, asked := benchBound(b)
	for _, name := range []string{"lookup", "text"} {
		b.Run(name, func(b *testing.B) {
			asked.Name = name
			call := mustPrepare(b, bound, name, string(asked.Arguments))
			inv := invocation()
			b.ReportAllocs()
			for b.Loop() {
				if result, err := bound.Execute(b.Context(), call, inv); err != nil || !result.OK() {
					b.Fatal(result.Message, err)
				}
			}
		})
	}
}
