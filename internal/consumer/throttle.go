package consumer

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/metric"
)

// throttle counts how long brokers make the worker's clients wait because of a quota (KIP-13, KIP-124, KIP-219). The worker needs to
// do nothing else about it: requests take longer, cycles hold more, and lag says whether that is enough.
type throttle struct{ seconds metric.Float64Counter }

var _ kgo.HookBrokerThrottle = throttle{}

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (t throttle) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	t.seconds.Add(context.Background(), wait.Seconds()) //nolint:forbidigo // franz-go gives no context.
}

// newClient makes a client whose throttling is counted.
func (w *Worker) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	return w.deps.NewClient(append(opts, kgo.WithHooks(w.metrics.throttle))...)
}
