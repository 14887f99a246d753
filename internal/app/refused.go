package app

import (
	"context"
	"fmt"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/schemas"
)

// Refused implements consumer.Refuser: the turn that the record belongs to is ended without what it has not committed, and later
// turns of its session that may have read that begin again. A turn that cannot even begin is a dead letter.
func (p *partition) Refused(_ context.Context, r *consumer.Refusal) ([]consumer.Task, error) {
	refused, err := p.store.Refuse(r.Effect)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, r.Fault())
	}
	var tasks []consumer.Task
	if refused.Turn != nil {
		tasks = append(tasks, p.failing(refused.Turn, refused.Unborn, r))
	}
	for _, j := range refused.Again {
		if k, ok := j.Run().(*taking); ok {
			tasks = append(tasks, p.task(j.LaneKey(), k))
		}
	}
	return tasks, nil
}

// failing is the task that ends a turn whose record was refused.
func (p *partition) failing(j *dedupe.Journal, unborn bool, r *consumer.Refusal) consumer.Task {
	k := &taking{turnID: j.Accepted().TurnID, thrift: j.Thrift() + 1, why: r}
	if was, ok := j.Run().(*taking); ok {
		k.rec, k.was = was.rec, was
	}
	if unborn && k.rec != nil {
		return consumer.Task{LaneKey: j.LaneKey(), Record: k.rec, Run: func(context.Context) error {
			return schemas.Errorf(schemas.CodeTooLarge, "the turn cannot begin: %s", r.Detail())
		}}
	}
	return p.task(j.LaneKey(), k)
}

// task takes a turn again as it was taken.
func (p *partition) task(lane string, was *taking) consumer.Task {
	k := &taking{turnID: was.turnID, rec: was.rec, thrift: was.thrift, why: was.why, was: was.was}
	return consumer.Task{LaneKey: lane, Record: k.rec, Run: func(ctx context.Context) error {
		if k.rec == nil {
			return p.resume(ctx, k)
		}
		return p.accept(ctx, k)
	}}
}

func refusalCode(r *consumer.Refusal) schemas.Code {
	if r.TooLarge() {
		return schemas.CodeLimitExceeded
	}
	return schemas.CodeInternal
}
