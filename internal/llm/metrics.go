package llm

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// metrics are the instruments of breakers. Gauges are read from the router when they are collected.
type metrics struct {
	opens  metric.Int64Counter
	gauges metric.Registration
}

func newMetrics(meter metric.Meter, r *Router) (*metrics, error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	m := &metrics{}
	var err error
	if m.opens, err = meter.Int64Counter("lathe.provider.breaker.opens", metric.WithUnit("{transition}"),
		metric.WithDescription("How often a model was found to be down.")); err != nil {
		return nil, fmt.Errorf("make the instruments: %w", err)
	}
	state, err := meter.Int64ObservableGauge("lathe.provider.breaker", metric.WithUnit("1"),
		metric.WithDescription("1 while a model is down and its agents begin no turns, else 0."))
	if err != nil {
		return nil, fmt.Errorf("make the instruments: %w", err)
	}
	waiting, err := meter.Int64ObservableGauge("lathe.provider.breaker.waiting", metric.WithUnit("{turn}"),
		metric.WithDescription("Turns that wait for a model that is down."))
	if err != nil {
		return nil, fmt.Errorf("make the instruments: %w", err)
	}
	m.gauges, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, s := range r.Status() {
			down := int64(0)
			if s.Down {
				down = 1
			}
			o.ObserveInt64(state, down, labels(s.Model, s.Provider))
			o.ObserveInt64(waiting, s.Waiting, labels(s.Model, s.Provider))
		}
		return nil
	}, state, waiting)
	if err != nil {
		return nil, fmt.Errorf("register gauges: %w", err)
	}
	return m, nil
}

// labels are the model's name in the manifest and its provider.
func labels(model, provider string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("model", model), attribute.String("gen_ai.provider.name", provider))
}

func (m *metrics) opened(ctx context.Context, b *breaker) {
	m.opens.Add(ctx, 1, labels(b.model, b.provider))
}

func (m *metrics) close() error {
	if err := m.gauges.Unregister(); err != nil {
		return fmt.Errorf("unregister gauges: %w", err)
	}
	return nil
}
