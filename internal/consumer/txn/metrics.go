package txn

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the instruments of a Ring.
type metrics struct {
	duration  metric.Float64Histogram
	replaced  metric.Int64Counter
	unknown   metric.Int64Counter
	retries   metric.Int64Counter
	again     map[retry]metric.MeasurementOption
	committed metric.MeasurementOption
	aborted   metric.MeasurementOption
}

// Name and description of the counter of everything that is tried again, whichever package does so; its attribute "what" tells them
// apart.
const (
	RetriesName = "lathe.retries"
	RetriesHelp = "What is tried again, by what it is."
)

// retry is what is tried again.
type retry string

const (
	retryOpen     retry = "open"
	retryAnnounce retry = "announce"
	retryOffsets  retry = "offsets"
	retryResolve  retry = "resolve"
)

func newMetrics(meter metric.Meter) (*metrics, error) {
	duration, err := meter.Float64Histogram("lathe.commit.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of a commit cycle, by outcome."),
		metric.WithExplicitBucketBoundaries(.001, .002, .003, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30))
	replaced, err2 := meter.Int64Counter("lathe.commit.replaced_producers", metric.WithUnit("{producer}"),
		metric.WithDescription("Transactional producers made anew after a failure."))
	unknown, err3 := meter.Int64Counter("lathe.commit.unknown_outcomes", metric.WithUnit("{cycle}"),
		metric.WithDescription("Commit cycles whose outcome the broker did not tell, so that it had to be found out."))
	retries, err4 := meter.Int64Counter(RetriesName, metric.WithUnit("{retry}"), metric.WithDescription(RetriesHelp))
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return nil, fmt.Errorf("make the instruments: %w", err)
	}
	outcome := func(o Outcome) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", o.String())))
	}
	again := make(map[retry]metric.MeasurementOption)
	for _, what := range []retry{retryOpen, retryAnnounce, retryOffsets, retryResolve} {
		again[what] = metric.WithAttributeSet(attribute.NewSet(attribute.String("what", string(what))))
	}
	return &metrics{
		duration: duration, replaced: replaced, unknown: unknown, retries: retries, again: again,
		committed: outcome(Committed), aborted: outcome(Aborted),
	}, nil
}

// cycle records one cycle; the count of the histogram is the number of cycles.
func (m *metrics) cycle(ctx context.Context, res *Result) {
	option := m.aborted
	if res.Outcome == Committed {
		option = m.committed
	}
	m.duration.Record(ctx, res.Elapsed.Seconds(), option)
}

// retry counts one more try.
func (m *metrics) retry(ctx context.Context, what retry) { m.retries.Add(ctx, 1, m.again[what]) }
