package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

type benchQuery struct {
	Query string `json:"query" jsonschema:"what to look for"`
}

type benchFound struct {
	Found string `json:"found"`
}

// BenchmarkTurn is a whole turn without Kafka: four responses and three reading calls, accepted, run, encoded, taken into a
// batch with 255 others and settled.
func BenchmarkTurn(b *testing.B) {
	h := benchHandler(b)
	store, err := statestore.Open(statestore.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	state := store.Attach(0, func(bool) {})
	a := consumer.NewAssignment(consumer.Assignment{Topic: "turns", State: state}, func(context.Context) error { return nil })
	p, err := h.Open(b.Context(), a)
	if err != nil {
		b.Fatal(err)
	}
	decoder := schemas.NewDecoder(schemas.DecoderOptions{})
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		id := "t" + strconv.Itoa(i)
		value := []byte(`{"turn_id":"` + id + `","messages":[{"role":"user","content":"Please answer a question."}]}`)
		d, err := decoder.Decode(b.Context(), value, nil)
		if err != nil {
			b.Fatal(err)
		}
		rec := &consumer.Record{Topic: "turns", Offset: int64(i), Key: []byte(id), Event: d.Event, Hash: d.Hash}
		if err := p.Handle(b.Context(), rec); err != nil {
			b.Fatal(err)
		}
		if i%256 == 255 {
			benchCommit(b, store, state)
		}
	}
	b.StopTimer()
	benchCommit(b, store, state)
	state.Detach()
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

func benchCommit(b *testing.B, store *statestore.Store, state *statestore.Partition) {
	b.Helper()
	batch, err := state.Take(1<<30, 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	if batch == nil {
		return
	}
	if err := store.Commit([]statestore.Settlement{{Batch: batch, Position: statestore.Position{At: time.Now()}}}); err != nil {
		b.Fatal(err)
	}
}

func benchHandler(b *testing.B) *handler {
	b.Helper()
	dir := b.TempDir()
	step := "      - text: I look.\n        pad: 500\n        calls: [{name: look, arguments: {query: a question}}]\n"
	files := map[string]string{
		"lathe.yaml":  "version: 1\nagents:\n  bench: {model: main, system: You answer., tools: [look]}\nmodels:\n  main: {provider: scripted, model: m, script: script.yaml}\n",
		"script.yaml": "version: 1\nscenarios:\n  - steps:\n" + strings.Repeat(step, 3) + "      - text: There.\n        pad: 500\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	s, err := LoadOfflineSettings(b.Context(), nil, os.ReadFile)
	if err != nil {
		b.Fatal(err)
	}
	m, err := LoadManifest(filepath.Join(dir, "lathe.yaml"), func(string) (string, bool) { return "", false })
	if err != nil {
		b.Fatal(err)
	}
	found := benchFound{strings.Repeat("x", 288)}
	look := tools.Define("look", func(*tools.Context, benchQuery) (benchFound, error) { return found, nil },
		tools.Options{Description: "Looks.", Effect: schemas.EffectRead})
	telemetry, err := StartTelemetry(b.Context(), "bench", "", "bench")
	if err != nil {
		b.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	e, err := NewEngine(s, m, Program{Tools: []tools.Tool{look}}, EngineDeps{Logger: logger, Worker: "bench", Telemetry: telemetry})
	if err != nil {
		b.Fatal(err)
	}
	encoder, err := schemas.NewEncoder(schemas.EncodingJSON, schemas.EncoderOptions{})
	if err != nil {
		b.Fatal(err)
	}
	codec, err := dedupe.NewCodec(dedupe.Config{
		App: "bench", Worker: "bench", ToolTopic: "tool-events", TurnTopic: "turn-events", ToolEncoder: encoder, TurnEncoder: encoder,
		RecordBytes: valueBudget(s), Now: time.Now,
	})
	if err != nil {
		b.Fatal(err)
	}
	return &handler{engine: e, codec: codec, telemetry: telemetry, group: "bench", logger: logger}
}
