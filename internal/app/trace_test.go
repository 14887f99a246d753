package app

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

const (
	testTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	testParent = "00-" + testTrace + "-00f067aa0ba902b7-01"
)

// runTraced runs one turn whose record has the headers, and returns its spans and the outputs it added.
func runTraced(t *testing.T, headers []schemas.Header) (tracetest.SpanStubs, []*statestore.Output) {
	t.Helper()
	recorder := tracetest.NewInMemoryExporter()
	telemetry := NoTelemetry()
	telemetry.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(recorder)).Tracer(scope)
	h := testHandler(t, telemetry)
	store, err := statestore.Open(statestore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	state := store.Attach(0, func(bool) {})
	p, err := h.Open(t.Context(), consumer.NewAssignment(consumer.Assignment{Topic: "turns", State: state}, func(context.Context) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	d, err := schemas.NewDecoder(schemas.DecoderOptions{}).Decode(t.Context(), []byte(`{"turn_id":"t1","session_id":"s1","messages":[{"role":"user","content":"hi"}]}`), headers)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(t.Context(), &consumer.Record{Topic: "turns", Key: []byte("s1"), Headers: headers, Event: d.Event, Hash: d.Hash}); err != nil {
		t.Fatal(err)
	}
	batch, err := state.Take(1<<30, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	batch.Waiting().Tell()
	if err := store.Commit([]statestore.Settlement{{Batch: batch, Position: statestore.Position{At: time.Now()}}}); err != nil {
		t.Fatal(err)
	}
	state.Detach()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return recorder.GetSpans(), batch.Outputs
}

func TestTrace_ASpanPerTurnModelCallAndToolCallInTheProducersTrace(t *testing.T) {
	t.Parallel()
	// Keys may repeat and be empty; the last one counts and a bad one fails nothing.
	spans, outputs := runTraced(t, []schemas.Header{{Key: "traceparent"}, {Key: "traceparent", Value: []byte("junk")}, {Key: "traceparent", Value: []byte(testParent)}})
	var names []string
	for _, s := range spans {
		names = append(names, s.Name)
		if got := s.SpanContext.TraceID().String(); got != testTrace {
			t.Errorf("span %s is in trace %s, want the producer's %s", s.Name, got, testTrace)
		}
	}
	slices.Sort(names)
	want := []string{"chat m", "chat m", "chat m", "chat m", "execute_tool look", "execute_tool look", "execute_tool look", "invoke_agent bench"}
	if !slices.Equal(names, want) {
		t.Errorf("spans %v, want %v", names, want)
	}
	for _, o := range outputs {
		if parent := headerOf(o, "traceparent"); !strings.HasPrefix(parent, "00-"+testTrace+"-") {
			t.Errorf("event %s has traceparent %q, want the producer's trace", headerOf(o, "ce_id"), parent)
		}
	}
}

func TestTrace_ABadContextStartsATraceOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "junk", "00-00000000000000000000000000000000-0000000000000000-01"} {
		spans, outputs := runTraced(t, []schemas.Header{{Key: "traceparent", Value: []byte(value)}})
		if len(spans) != 8 || len(outputs) != 12 {
			t.Errorf("traceparent %q: %d spans and %d events, want 8 and 12", value, len(spans), len(outputs))
		}
	}
}

func headerOf(o *statestore.Output, key string) string {
	for _, h := range o.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

func TestMetrics_TellTurnsCallsAndToolsApart(t *testing.T) {
	t.Parallel()
	if _, err := newAppMetrics(metricnoop.NewMeterProvider().Meter(scope)); err != nil {
		t.Fatal(err)
	}
	telemetry, err := StartTelemetry(t.Context(), "test", "1", "i")
	if err != nil {
		t.Fatal(err)
	}
	defer telemetry.Shutdown(t.Context())
	h := testHandler(t, telemetry)
	h.telemetry.duplicate(t.Context(), "bench")
	families, err := telemetry.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	if !slices.Contains(names, "lathe_turns_duplicates_total") {
		t.Errorf("metrics %v lack lathe_turns_duplicates_total", names)
	}
}
