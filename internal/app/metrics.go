package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// appMetrics are the instruments of turns, model calls and tool calls. Labels come from the manifest and from codes, never
// from what a turn holds.
type appMetrics struct {
	turns      metric.Int64Counter
	duplicates metric.Int64Counter
	turnTime   metric.Float64Histogram
	chatTime   metric.Float64Histogram
	toolTime   metric.Float64Histogram
	input      metric.Int64Counter
	output     metric.Int64Counter
	retries    metric.Int64Counter
	// labels holds the series made so far by their labels: making them anew for each call costs more than the call.
	labels *sync.Map
}

// label is what tells one series from another; each instrument uses some of it.
type label struct{ kind, agent, name, provider, outcome string }

// The kinds of labels: of turns in all, of turns by how they ended, of model requests and of tool calls.
const (
	turnLabel    = "turn"
	outcomeLabel = "outcome"
	chatLabel    = "chat"
	toolLabel    = "tool"
)

// series are the options by which a value is recorded for its labels: a list of them is made for each call otherwise.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// series returns what stands for the labels, made once.
func (a *appMetrics) series(l label) *series {
	if s, ok := a.labels.Load(l); ok {
		return s.(*series) //nolint:forcetypeassert // Nothing else is stored there.
	}
	o := metric.WithAttributeSet(attribute.NewSet(l.attributes()...))
	s, _ := a.labels.LoadOrStore(l, &series{add: []metric.AddOption{o}, record: []metric.RecordOption{o}})
	return s.(*series) //nolint:forcetypeassert // Nothing else is stored there.
}

func (l label) attributes() []attribute.KeyValue {
	agent := attribute.String("gen_ai.agent.name", l.agent)
	switch l.kind {
	case outcomeLabel:
		return []attribute.KeyValue{agent, attribute.String("outcome", l.outcome)}
	case chatLabel:
		return withError([]attribute.KeyValue{
			attribute.String("gen_ai.operation.name", "chat"),
			attribute.String("gen_ai.provider.name", l.provider),
			attribute.String("gen_ai.request.model", l.name),
		}, l.outcome)
	case toolLabel:
		return withError([]attribute.KeyValue{attribute.String("gen_ai.tool.name", l.name), agent}, l.outcome)
	}
	return []attribute.KeyValue{agent}
}

func newAppMetrics(m metric.Meter) (appMetrics, error) {
	a := appMetrics{labels: &sync.Map{}}
	var errs [8]error
	long := metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36)
	a.turns, errs[0] = m.Int64Counter("lathe.turns", metric.WithUnit("{turn}"), metric.WithDescription("Turns that ended, by agent and outcome; suspended ones go on elsewhere."))
	a.duplicates, errs[1] = m.Int64Counter("lathe.turns.duplicates", metric.WithUnit("{turn}"), metric.WithDescription("Records that repeat a turn which has ended."))
	a.turnTime, errs[2] = m.Float64Histogram("gen_ai.invoke_agent.duration", metric.WithUnit("s"), long, metric.WithDescription("Time from a turn's acceptance to its end."))
	a.chatTime, errs[3] = m.Float64Histogram("gen_ai.client.inference.duration", metric.WithUnit("s"), long, metric.WithDescription("Time of a model request, retries included."))
	a.toolTime, errs[4] = m.Float64Histogram("gen_ai.execute_tool.duration", metric.WithUnit("s"), long, metric.WithDescription("Time of a tool call, retries included."))
	a.input, errs[5] = m.Int64Counter("gen_ai.client.inference.usage.input_tokens", metric.WithUnit("{token}"), metric.WithDescription("Input tokens, cached ones included."))
	a.output, errs[6] = m.Int64Counter("gen_ai.client.inference.usage.output_tokens", metric.WithUnit("{token}"), metric.WithDescription("Output tokens."))
	a.retries, errs[7] = m.Int64Counter(txn.RetriesName, metric.WithUnit("{retry}"), metric.WithDescription(txn.RetriesHelp))
	return a, errors.Join(errs[:]...)
}

// retried returns what counts a model request or a tool call that is tried again; see consumer for the others.
func (t *Telemetry) retried(what string) func(ctx context.Context) {
	if t == nil {
		return nil
	}
	o := metric.WithAttributeSet(attribute.NewSet(attribute.String("what", what)))
	return func(ctx context.Context) { t.metrics.retries.Add(ctx, 1, o) }
}

func (t *Telemetry) duplicate(ctx context.Context, agent string) {
	t.metrics.duplicates.Add(ctx, 1, t.metrics.series(label{kind: turnLabel, agent: agent}).add...)
}

func (t *Telemetry) turnEnded(ctx context.Context, a *fact.Accepted, end *fact.Ended, err error) {
	outcome := "suspended"
	switch {
	case end != nil:
		outcome = end.Status
		t.metrics.turnTime.Record(ctx, end.Duration.Seconds(), t.metrics.series(label{kind: turnLabel, agent: a.AgentName}).record...)
	case err == nil:
		return
	}
	t.metrics.turns.Add(ctx, 1, t.metrics.series(label{kind: outcomeLabel, agent: a.AgentName, outcome: outcome}).add...)
}

func (t *Telemetry) chatEnded(ctx context.Context, req *fact.Request, resp *fact.Response, took time.Duration, err error) {
	l := label{kind: chatLabel, name: req.Spec.Model, provider: req.Spec.Provider}
	if err != nil {
		l.outcome = errorType(err)
	}
	s := t.metrics.series(l)
	t.metrics.chatTime.Record(ctx, took.Seconds(), s.record...)
	if err != nil {
		return
	}
	if n := resp.Usage.InputTokens; n > 0 {
		t.metrics.input.Add(ctx, n, s.add...)
	}
	if n := resp.Usage.OutputTokens; n > 0 {
		t.metrics.output.Add(ctx, n, s.add...)
	}
}

func (t *Telemetry) toolEnded(ctx context.Context, call *fact.Call, inv fact.Invocation, res *fact.Result, took time.Duration, err error) {
	l := label{kind: toolLabel, agent: inv.Agent, name: call.Tool.Name}
	switch {
	case err != nil:
		l.outcome = errorType(err)
	case !res.OK():
		l.outcome = string(res.Code)
	}
	t.metrics.toolTime.Record(ctx, took.Seconds(), t.metrics.series(l).record...)
}

func withError(attrs []attribute.KeyValue, kind string) []attribute.KeyValue {
	if kind == "" {
		return attrs
	}
	return append(attrs, attribute.String("error.type", kind))
}

// errorType is the class of an error for telemetry: its code, or that the worker stopped it.
func errorType(err error) string {
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		return string(e.Code)
	}
	return "suspended"
}
