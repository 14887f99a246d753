package app

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

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
}

func newAppMetrics(m metric.Meter) (appMetrics, error) {
	var a appMetrics
	var errs [7]error
	long := metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36)
	a.turns, errs[0] = m.Int64Counter("lathe.turns", metric.WithUnit("{turn}"), metric.WithDescription("Turns that ended, by agent and outcome; suspended ones go on elsewhere."))
	a.duplicates, errs[1] = m.Int64Counter("lathe.turns.duplicates", metric.WithUnit("{turn}"), metric.WithDescription("Records that repeat a turn which has ended."))
	a.turnTime, errs[2] = m.Float64Histogram("gen_ai.invoke_agent.duration", metric.WithUnit("s"), long, metric.WithDescription("Time from a turn's acceptance to its end."))
	a.chatTime, errs[3] = m.Float64Histogram("gen_ai.client.inference.duration", metric.WithUnit("s"), long, metric.WithDescription("Time of a model request, retries included."))
	a.toolTime, errs[4] = m.Float64Histogram("gen_ai.execute_tool.duration", metric.WithUnit("s"), long, metric.WithDescription("Time of a tool call, retries included."))
	a.input, errs[5] = m.Int64Counter("gen_ai.client.inference.usage.input_tokens", metric.WithUnit("{token}"), metric.WithDescription("Input tokens, cached ones included."))
	a.output, errs[6] = m.Int64Counter("gen_ai.client.inference.usage.output_tokens", metric.WithUnit("{token}"), metric.WithDescription("Output tokens."))
	return a, errors.Join(errs[:]...)
}

func (t *Telemetry) duplicate(ctx context.Context, agent string) {
	t.metrics.duplicates.Add(ctx, 1, metric.WithAttributes(attribute.String("gen_ai.agent.name", agent)))
}

func (t *Telemetry) turnEnded(ctx context.Context, a *fact.Accepted, end *fact.Ended, err error) {
	agent := attribute.String("gen_ai.agent.name", a.AgentName)
	switch {
	case end != nil:
		t.metrics.turns.Add(ctx, 1, metric.WithAttributes(agent, attribute.String("outcome", end.Status)))
		t.metrics.turnTime.Record(ctx, end.Duration.Seconds(), metric.WithAttributes(agent))
	case err != nil:
		t.metrics.turns.Add(ctx, 1, metric.WithAttributes(agent, attribute.String("outcome", "suspended")))
	}
}

func (t *Telemetry) chatEnded(ctx context.Context, req *fact.Request, resp *fact.Response, err error) {
	attrs := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"),
		attribute.String("gen_ai.provider.name", req.Spec.Provider),
		attribute.String("gen_ai.request.model", req.Spec.Model),
	}
	if err != nil {
		attrs = append(attrs, attribute.String("error.type", errorType(err)))
		t.metrics.chatTime.Record(ctx, 0, metric.WithAttributes(attrs...))
		return
	}
	set := metric.WithAttributes(attrs...)
	t.metrics.chatTime.Record(ctx, resp.Duration.Seconds(), set)
	t.metrics.input.Add(ctx, resp.Usage.InputTokens, set)
	t.metrics.output.Add(ctx, resp.Usage.OutputTokens, set)
}

func (t *Telemetry) toolEnded(ctx context.Context, call *fact.Call, inv fact.Invocation, res *fact.Result, err error) {
	attrs := []attribute.KeyValue{attribute.String("gen_ai.tool.name", call.Tool.Name), attribute.String("gen_ai.agent.name", inv.Agent)}
	var took time.Duration
	switch {
	case err != nil:
		attrs = append(attrs, attribute.String("error.type", errorType(err)))
	default:
		took = res.Duration
		if !res.OK() {
			attrs = append(attrs, attribute.String("error.type", string(res.Code)))
		}
	}
	t.metrics.toolTime.Record(ctx, took.Seconds(), metric.WithAttributes(attrs...))
}

// errorType is the class of an error for telemetry: its code, or that the worker stopped it.
func errorType(err error) string {
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		return string(e.Code)
	}
	return "suspended"
}
