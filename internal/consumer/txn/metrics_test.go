package txn

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestRing_CountsItsCyclesAndReplacedProducers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		reader := metric.NewManualReader()
		provider := metric.NewMeterProvider(metric.WithReader(reader))
		w := f.worker(func(c *Config) { c.Meter = provider.Meter("test") })
		for _, id := range []string{"a", "b"} {
			requireOutcome(t, w.commit(id, 0), Committed, nil)
		}
		f.cluster.Fault(kfake.Fault{Keys: keys(kmsg.Produce), Err: kerr.InvalidProducerEpoch})
		requireOutcome(t, w.commit("c", 0), Aborted, ErrTransient)
		c := w.cycle("d", 0)
		c.Check = func() error { return errors.New("gone") }
		_, err := w.ring.Commit(t.Context(), c)
		must(t, err)

		var data metricdata.ResourceMetrics
		must(t, reader.Collect(t.Context(), &data))
		got := map[string]int{}
		for _, m := range data.ScopeMetrics[0].Metrics {
			switch points := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range points.DataPoints {
					outcome, _ := p.Attributes.Value("outcome")
					got[m.Name+" "+outcome.AsString()] = int(p.Count)
				}
			case metricdata.Sum[int64]:
				got[m.Name] = int(points.DataPoints[0].Value)
			}
		}
		equal(t, got, map[string]int{
			"lathe.commit.duration committed": 2, "lathe.commit.duration aborted": 2, "lathe.commit.replaced_producers": 1,
		})
	})
}
