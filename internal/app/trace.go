package app

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// maxTraceParent and maxTraceState bound what is taken of a producer's trace context, since it is passed on with every event. The
// state's is what W3C asks everyone to pass on; longer ones may be dropped.
const (
	maxTraceParent = 128
	maxTraceState  = 512
)

// noSpan is the span when nobody takes any. What a context then carries of the producer's trace goes on as it came.
var noSpan = trace.SpanFromContext(context.Background()) //nolint:gochecknoglobals,forbidigo // It is nothing, and has no context.

// traceHeaders returns the producer's trace context. Keys may repeat; the last one counts. What is too long is left out.
func traceHeaders(headers []schemas.Header) (parent, state string) {
	for _, h := range headers {
		switch h.Key {
		case "traceparent":
			parent = string(h.Value)
		case "tracestate":
			state = string(h.Value)
		}
	}
	if len(parent) > maxTraceParent {
		parent = ""
	}
	if len(state) > maxTraceState {
		state = ""
	}
	return parent, state
}

// withParent returns ctx with a remote parent. A context that does not parse is no parent, never an error.
func withParent(ctx context.Context, parent, state string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
}

// traceOf is the trace context that events of the span in ctx carry.
func traceOf(ctx context.Context) (parent, state string) {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c["traceparent"], c["tracestate"]
}

// startTurn begins the spans of a turn: processing its record, as a child of the producer's span, and running its agent.
func (t *Telemetry) startTurn(ctx context.Context, group string, a *fact.Accepted, rec *consumer.Record) (context.Context, trace.Span) {
	ctx = withParent(ctx, a.Trace, a.TraceState)
	if t.tracer == nil {
		return ctx, noSpan
	}
	ctx, span := t.tracer.Start(ctx, "invoke_agent "+a.AgentName, trace.WithSpanKind(trace.SpanKindConsumer))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(
		attribute.String("gen_ai.operation.name", "invoke_agent"),
		attribute.String("gen_ai.agent.name", a.AgentName),
		attribute.String("gen_ai.conversation.id", a.SessionID),
		attribute.String("lathe.turn.id", a.TurnID),
		attribute.String("messaging.system", "kafka"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.consumer.group.name", group),
		attribute.String("messaging.destination.name", a.Origin.Topic),
	)
	if rec != nil {
		span.SetAttributes(attribute.Int("messaging.destination.partition.id", int(rec.Partition)), attribute.Int64("messaging.kafka.offset", rec.Offset))
	}
	return ctx, span
}

// endTurn ends the span of a turn. A turn that was suspended is no failure of its agent, but its span did not see the end.
func (t *Telemetry) endTurn(ctx context.Context, span trace.Span, j *dedupe.Journal, err error) {
	end := j.End()
	t.turnEnded(ctx, j.Accepted(), end, err)
	if !span.IsRecording() {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, "suspended")
		span.SetAttributes(attribute.String("error.type", "suspended"))
	}
	if end != nil {
		span.SetAttributes(
			attribute.String("lathe.turn.status", end.Status),
			attribute.Int64("gen_ai.usage.input_tokens", end.Usage.InputTokens),
			attribute.Int64("gen_ai.usage.output_tokens", end.Usage.OutputTokens),
		)
		if end.Status != schemas.StatusCompleted {
			span.SetStatus(codes.Error, string(end.Code))
			span.SetAttributes(attribute.String("error.type", string(end.Code)))
		}
	}
	span.End()
}

func (t *Telemetry) startChat(ctx context.Context, req *fact.Request) (context.Context, trace.Span) {
	if t.tracer == nil {
		return ctx, noSpan
	}
	ctx, span := t.tracer.Start(ctx, "chat "+req.Spec.Model, trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("gen_ai.operation.name", "chat"),
			attribute.String("gen_ai.provider.name", req.Spec.Provider),
			attribute.String("gen_ai.request.model", req.Spec.Model),
			attribute.String("gen_ai.agent.name", req.Agent),
			attribute.String("gen_ai.conversation.id", req.Session),
			attribute.Int("lathe.step", req.Step),
		)
	}
	return ctx, span
}

func (t *Telemetry) endChat(ctx context.Context, span trace.Span, req *fact.Request, resp *fact.Response, took time.Duration, err error) {
	t.chatEnded(ctx, req, resp, took, err)
	if span.IsRecording() {
		if err != nil {
			span.SetStatus(codes.Error, errorType(err))
			span.SetAttributes(attribute.String("error.type", errorType(err)))
		} else {
			span.SetAttributes(
				attribute.String("gen_ai.response.model", resp.Model),
				attribute.StringSlice("gen_ai.response.finish_reasons", []string{resp.FinishReason}),
				attribute.Int64("gen_ai.usage.input_tokens", resp.Usage.InputTokens),
				attribute.Int64("gen_ai.usage.output_tokens", resp.Usage.OutputTokens),
			)
		}
	}
	span.End()
}

func (t *Telemetry) startTool(ctx context.Context, call *fact.Call, inv fact.Invocation) (context.Context, trace.Span) {
	if t.tracer == nil {
		return ctx, noSpan
	}
	ctx, span := t.tracer.Start(ctx, "execute_tool "+call.Tool.Name)
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("gen_ai.operation.name", "execute_tool"),
			attribute.String("gen_ai.tool.name", call.Tool.Name),
			attribute.String("gen_ai.tool.type", "function"),
			attribute.String("gen_ai.tool.call.id", call.CallID),
			attribute.String("gen_ai.agent.name", inv.Agent),
			attribute.String("gen_ai.conversation.id", inv.SessionID),
			attribute.String("lathe.idempotency_key", call.Key(inv.TurnID)),
		)
	}
	return ctx, span
}

func (t *Telemetry) endTool(ctx context.Context, span trace.Span, call *fact.Call, inv fact.Invocation, res *fact.Result, took time.Duration, err error) {
	t.toolEnded(ctx, call, inv, res, took, err)
	if span.IsRecording() {
		switch {
		case err != nil:
			span.SetStatus(codes.Error, errorType(err))
			span.SetAttributes(attribute.String("error.type", errorType(err)))
		case !res.OK():
			span.SetStatus(codes.Error, string(res.Code))
			span.SetAttributes(attribute.String("error.type", string(res.Code)))
		}
	}
	span.End()
}
