package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	otelruntime "go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of everything the worker emits.
const scope = "github.com/lathe-run/lathe"

// Telemetry is where the worker's traces and metrics go.
type Telemetry struct {
	// tracer is nil when nobody takes spans.
	tracer   trace.Tracer
	meters   metric.MeterProvider
	registry *prometheus.Registry
	metrics  appMetrics
	shutdown []func(context.Context) error
}

// NoTelemetry takes traces and metrics and throws them away.
func NoTelemetry() *Telemetry {
	t := &Telemetry{meters: metricnoop.NewMeterProvider(), registry: prometheus.NewRegistry()}
	t.metrics, _ = newAppMetrics(t.meters.Meter(scope)) // A no-op meter gives no error.
	return t
}

// StartTelemetry starts what the OTEL_ variables ask for. Traces and OTLP metrics are exported when an OTLP endpoint or an
// exporter is named, else not at all; Prometheus metrics are always kept for the admin port. OTEL_SDK_DISABLED=true turns
// all of it off.
func StartTelemetry(ctx context.Context, service, version, instance string) (*Telemetry, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return NoTelemetry(), nil
	}
	res, err := resource.Merge(resource.NewSchemaless(
		attribute.String("service.name", service),
		attribute.String("service.version", version),
		attribute.String("service.instance.id", instance),
	), resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("describe the process to telemetry: %w", err)
	}
	t := &Telemetry{registry: prometheus.NewRegistry()}
	if err := errors.Join(t.startTraces(ctx, res), t.startMetrics(ctx, res)); err != nil {
		return nil, errors.Join(err, t.Shutdown(ctx))
	}
	return t, nil
}

func (t *Telemetry) startTraces(ctx context.Context, res *resource.Resource) error {
	if !exports("TRACES") {
		return nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return fmt.Errorf("start the trace exporter: %w", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	t.shutdown = append(t.shutdown, p.Shutdown)
	t.tracer = p.Tracer(scope)
	return nil
}

func (t *Telemetry) startMetrics(ctx context.Context, res *resource.Resource) error {
	pull, err := otelprom.New(otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("start the prometheus exporter: %w", err)
	}
	opts := []sdkmetric.Option{sdkmetric.WithReader(pull), sdkmetric.WithResource(res)}
	if exports("METRICS") && os.Getenv("OTEL_METRICS_EXPORTER") != "prometheus" {
		push, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return fmt.Errorf("start the metric exporter: %w", err)
		}
		opts = append(opts, sdkmetric.WithReader(push))
	}
	p := sdkmetric.NewMeterProvider(opts...)
	t.shutdown = append(t.shutdown, p.Shutdown)
	t.meters = p
	if err := otelruntime.Start(otelruntime.WithMeterProvider(p)); err != nil {
		return fmt.Errorf("start the runtime metrics: %w", err)
	}
	t.metrics, err = newAppMetrics(p.Meter(scope))
	return err
}

// exports reports whether the environment names an exporter or an endpoint for a signal. Without either nothing is sent: the
// exporters' own default is a collector on this machine, and its absence would be logged for ever.
func exports(signal string) bool {
	switch os.Getenv("OTEL_" + signal + "_EXPORTER") {
	case "none":
		return false
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
	}
	return true
}

// Meter is the meter of the worker's packages.
func (t *Telemetry) Meter() metric.Meter { return t.meters.Meter(scope) }

const telemetryFlush = 5 * time.Second

// Shutdown sends what is left, within five seconds.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), telemetryFlush)
	defer cancel()
	var errs []error
	for _, f := range t.shutdown {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}
