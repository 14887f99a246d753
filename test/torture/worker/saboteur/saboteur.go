// Package saboteur wraps the ports of a worker, so that a build of the tortured worker can break one promise while the code of the
// product stays as it is.
package saboteur

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Handle stands before the handler of records: it may call next, once, twice, later or not at all.
type Handle func(ctx context.Context, a *consumer.Assignment, rec *consumer.Record, next func(ctx context.Context) error) error

// Handling wraps how records are handled.
func Handling(deps *consumer.Deps, h Handle) {
	deps.Handler = opener{deps.Handler, func(a *consumer.Assignment, p consumer.PartitionHandler) consumer.PartitionHandler {
		return handler{p, a, h}
	}}
}

// Rejecting wraps the events that go beside dead letters.
func Rejecting(deps *consumer.Deps, f func([]statestore.Output) []statestore.Output) {
	deps.Handler = opener{deps.Handler, func(_ *consumer.Assignment, p consumer.PartitionHandler) consumer.PartitionHandler {
		return rejecter{p, f}
	}}
}

// Producing shows every record to f before it is produced.
func Producing(deps *consumer.Deps, f func(*kgo.Record)) {
	inner := deps.NewClient
	deps.NewClient = func(opts ...kgo.Opt) (*kgo.Client, error) {
		return inner(append(opts, kgo.WithHooks(producing(f)))...)
	}
}

// Complete says that a record is done, whether it is or not.
func Complete(a *consumer.Assignment, rec *consumer.Record) error {
	return a.State.Add(&statestore.Effect{Offset: rec.Offset, Urgent: true})
}

type opener struct {
	consumer.Handler

	wrap func(*consumer.Assignment, consumer.PartitionHandler) consumer.PartitionHandler
}

// Open implements consumer.Handler.
func (o opener) Open(ctx context.Context, a *consumer.Assignment) (consumer.PartitionHandler, error) {
	p, err := o.Handler.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return o.wrap(a, p), nil
}

type handler struct {
	consumer.PartitionHandler

	assignment *consumer.Assignment
	handle     Handle
}

// Handle implements consumer.PartitionHandler.
func (h handler) Handle(ctx context.Context, rec *consumer.Record) error {
	return h.handle(ctx, h.assignment, rec, func(ctx context.Context) error { return h.PartitionHandler.Handle(ctx, rec) })
}

type rejecter struct {
	consumer.PartitionHandler

	change func([]statestore.Output) []statestore.Output
}

// Rejected implements consumer.PartitionHandler.
func (r rejecter) Rejected(rec *consumer.Record, reason *schemas.Error) []statestore.Output {
	return r.change(r.PartitionHandler.Rejected(rec, reason))
}

type producing func(*kgo.Record)

// OnProduceRecordBuffered implements kgo.HookProduceRecordBuffered.
func (f producing) OnProduceRecordBuffered(r *kgo.Record) { f(r) }

// Header is the value of a header, empty if there is none.
func Header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
