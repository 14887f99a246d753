package consumer

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/schemas"
)

// metrics are the consumer's instruments. Gauges are read from the worker when they are collected.
type metrics struct {
	rebalances     metric.Int64Counter
	deadLetters    metric.Int64Counter
	refused        metric.Int64Counter
	restoreTime    metric.Float64Histogram
	restoreRecords metric.Int64Counter
	expired        metric.Int64Counter
	retries        metric.Int64Counter
	restoreBytes   metric.Int64Counter
	throttle       throttle
	gauges         metric.Registration
}

// retry is what is tried again; see also those of txn, llm and tools.
type retry string

const (
	retryCycle   retry = "cycle"
	retryRestore retry = "restore"
	retryDecode  retry = "decode"
	retryGroup   retry = "group"
	retryFetch   retry = "fetch"
)

type rebalanceEvent string

const (
	rebalanceAssigned rebalanceEvent = "assigned"
	rebalanceRevoked  rebalanceEvent = "revoked"
	rebalanceLost     rebalanceEvent = "lost"
)

func newMetrics(meter metric.Meter, w *Worker) (*metrics, error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	b := instruments{meter: meter}
	m := &metrics{
		rebalances:  b.counter("lathe.kafka.rebalances", "{event}", "Partitions assigned, revoked and lost."),
		deadLetters: b.counter("lathe.dead_letters", "{record}", "Records sent to the dead letter topic."),
		refused:     b.counter("lathe.commit.refused_records", "{record}", "Records that a broker refused for good, by topic."),
		restoreTime: b.histogram("lathe.state.restore.duration", "s", "Time to bring a partition's state up to date.",
			.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900),
		retries:        b.counter(txn.RetriesName, "{retry}", txn.RetriesHelp),
		restoreRecords: b.counter("lathe.state.restore.records", "{record}", "Changelog records applied by restores."),
		expired:        b.counter("lathe.state.expired", "{item}", "Turn records, cancels, configurations and sessions that have expired."),
		restoreBytes:   b.counter("lathe.state.restore.bytes", "By", "Keys and values applied by restores, uncompressed."),
		throttle:       throttle{b.seconds("lathe.kafka.throttle", "Time that brokers made the worker's requests wait because of a quota.")},
	}
	g := gauges{
		lag:        b.gauge("lathe.kafka.consumer.lag", "{record}", "Records between the committed offset and the end of the log."),
		committed:  b.gauge("lathe.kafka.consumer.offset.committed", "{offset}", "Committed offset."),
		end:        b.gauge("lathe.kafka.consumer.offset.end", "{offset}", "End of the log."),
		partitions: b.gauge("lathe.kafka.partitions", "{partition}", "Partitions by state."),
		active:     b.gauge("lathe.turns.active", "{turn}", "Turns that run."),
		waiting:    b.gauge("lathe.turns.waiting", "{turn}", "Turns that are on the topic, fetched or queued, and do not run yet."),
		limit:      b.gauge("lathe.turns.limit", "{turn}", "Turns that may be in flight."),
		effects:    b.gauge("lathe.commit.pending", "{effect}", "Effects that wait for their commit."),
		remaining:  b.gauge("lathe.state.restore.remaining", "{record}", "Changelog offsets that restores have yet to read."),
	}
	if b.err != nil {
		return nil, b.err
	}
	var err error
	m.gauges, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.observe(o, w)
		return nil
	}, g.all()...)
	if err != nil {
		return nil, fmt.Errorf("register gauges: %w", err)
	}
	return m, nil
}

// instruments makes instruments and keeps the first error.
type instruments struct {
	meter metric.Meter
	err   error
}

func (b *instruments) keep(err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("make instruments: %w", err)
	}
}

func (b *instruments) counter(name, unit, description string) metric.Int64Counter {
	c, err := b.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	b.keep(err)
	return c
}

func (b *instruments) seconds(name, description string) metric.Float64Counter {
	c, err := b.meter.Float64Counter(name, metric.WithUnit("s"), metric.WithDescription(description))
	b.keep(err)
	return c
}

func (b *instruments) histogram(name, unit, description string, bounds ...float64) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...))
	b.keep(err)
	return h
}

func (b *instruments) gauge(name, unit, description string) metric.Int64ObservableGauge {
	g, err := b.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	b.keep(err)
	return g
}

type gauges struct {
	lag, committed, end, partitions, active, waiting, limit, effects, remaining metric.Int64ObservableGauge
}

func (g *gauges) all() []metric.Observable {
	return []metric.Observable{g.lag, g.committed, g.end, g.partitions, g.active, g.waiting, g.limit, g.effects, g.remaining}
}

func (g *gauges) observe(o metric.Observer, w *Worker) {
	states := map[string]int64{}
	for _, s := range []state{stateAssigned, stateRestoring, stateRunning, stateDraining, stateHalted} {
		states[s.String()] = 0
	}
	var active, waiting, effects, remaining int64
	for _, p := range w.all() {
		s := p.status()
		if p.is() != stateGone {
			states[s.State]++
		}
		active += int64(s.InFlight - s.Queued)
		effects += int64(s.Effects)
		if s.Restore != nil {
			remaining += max(0, s.Restore.Target-s.Restore.Position)
		}
		if s.HighWater < 0 || s.Committed < 0 {
			continue
		}
		waiting += int64(s.Queued+s.Backlog) + max(0, s.HighWater-p.read())
		at := metric.WithAttributes(attribute.String("messaging.destination.name", w.cfg.Turns.Name),
			attribute.String("messaging.destination.partition.id", strconv.Itoa(int(p.id))))
		o.ObserveInt64(g.lag, max(0, s.HighWater-s.Committed), at)
		o.ObserveInt64(g.committed, s.Committed, at)
		o.ObserveInt64(g.end, s.HighWater, at)
	}
	for s, n := range states {
		o.ObserveInt64(g.partitions, n, metric.WithAttributes(attribute.String("state", s)))
	}
	o.ObserveInt64(g.active, active)
	o.ObserveInt64(g.waiting, waiting)
	o.ObserveInt64(g.limit, int64(w.cfg.MaxInFlight))
	o.ObserveInt64(g.effects, effects)
	o.ObserveInt64(g.remaining, remaining)
}

// read is the offset after the last record fetched.
func (p *partition) read() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.fetched
}

func (m *metrics) close() error {
	if err := m.gauges.Unregister(); err != nil {
		return fmt.Errorf("unregister gauges: %w", err)
	}
	return nil
}

func (m *metrics) rebalance(ctx context.Context, event rebalanceEvent, partitions int) {
	m.rebalances.Add(ctx, int64(partitions), metric.WithAttributes(attribute.String("event", string(event))))
}

func (m *metrics) deadLetter(ctx context.Context, reason schemas.Code) {
	m.deadLetters.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", string(reason))))
}

func (m *metrics) restored(ctx context.Context, took time.Duration, records, bytes int64) {
	m.restoreTime.Record(ctx, took.Seconds())
	m.restoreRecords.Add(ctx, records)
	m.restoreBytes.Add(ctx, bytes)
}

// retry counts one more try.
func (m *metrics) retry(ctx context.Context, what retry) {
	m.retries.Add(ctx, 1, metric.WithAttributes(attribute.String("what", string(what))))
}
