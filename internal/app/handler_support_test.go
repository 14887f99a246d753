package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

type testQuery struct {
	Query string `json:"query" jsonschema:"what to look for"`
}

type testFound struct {
	Found string `json:"found"`
}

// testHandler is a handler with one agent, whose scripted model asks for the reading tool look three times and then answers.
func testHandler(tb testing.TB, telemetry *Telemetry, change ...func(*dedupe.Config)) *handler {
	tb.Helper()
	dir := tb.TempDir()
	step := "      - text: I look.\n        pad: 500\n        calls: [{name: look, arguments: {query: a question}}]\n"
	files := map[string]string{
		"lathe.yaml":  "version: 1\nagents:\n  bench: {model: main, system: You answer., tools: [look]}\nmodels:\n  main: {provider: scripted, model: m, script: script.yaml}\n",
		"script.yaml": "version: 1\nscenarios:\n  - steps:\n" + strings.Repeat(step, 3) + "      - text: There.\n        pad: 500\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	s, err := LoadOfflineSettings(tb.Context(), nil, os.ReadFile)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := LoadManifest(filepath.Join(dir, "lathe.yaml"), func(string) (string, bool) { return "", false })
	if err != nil {
		tb.Fatal(err)
	}
	found := testFound{strings.Repeat("x", 288)}
	look := tools.Define("look", func(*tools.Context, testQuery) (testFound, error) { return found, nil },
		tools.Options{Description: "Looks.", Effect: schemas.EffectRead})
	logger := slog.New(slog.DiscardHandler)
	e, err := NewEngine(s, m, Program{Tools: []tools.Tool{look}}, EngineDeps{Logger: logger, Worker: "bench", Telemetry: telemetry})
	if err != nil {
		tb.Fatal(err)
	}
	encoder, err := schemas.NewEncoder(schemas.EncodingJSON, schemas.EncoderOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	cfg := dedupe.Config{
		App: "bench", Worker: "bench", ToolTopic: "tool-events", TurnTopic: "turn-events", ToolEncoder: encoder, TurnEncoder: encoder,
		RecordBytes: valueBudget(s), Now: time.Now,
	}
	for _, c := range change {
		c(&cfg)
	}
	codec, err := dedupe.NewCodec(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return newHandler(e, codec, telemetry, "bench", logger)
}
