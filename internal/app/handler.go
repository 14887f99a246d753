package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/llm"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/internal/turn"
	"github.com/lathe-run/lathe/schemas"
)

// handler gives records their meaning: it turns them into turns of the engine's agents.
type handler struct {
	engine    *Engine
	codec     *dedupe.Codec
	telemetry *Telemetry
	group     string
	logger    *slog.Logger
	// probation is where turns begin that the last worker may have died of.
	probation *probation
}

func newHandler(e *Engine, c *dedupe.Codec, t *Telemetry, group string, logger *slog.Logger) *handler {
	return &handler{engine: e, codec: c, telemetry: t, group: group, logger: logger, probation: newProbation()}
}

// Open implements consumer.Handler.
func (h *handler) Open(_ context.Context, a *consumer.Assignment) (consumer.PartitionHandler, error) {
	store, err := h.codec.Open(a.State)
	if err != nil {
		return nil, err
	}
	p := &partition{handler: h, assignment: a, store: store}
	p.outside.mu.turns = make(map[outsider]context.CancelCauseFunc)
	return p, nil
}

// partition handles the records of one assignment.
type partition struct {
	*handler
	assignment *consumer.Assignment
	store      *dedupe.Store
	outside    outside
	// awaited are the turns under way that go on with their records, by offset. Only the goroutine that calls Resume uses it.
	awaited map[int64]dedupe.Unfinished
}

// Resume implements consumer.PartitionHandler.
func (p *partition) Resume(context.Context) ([]consumer.Task, error) {
	turns, awaited, err := p.store.Unfinished(p.assignment.Start, topicID(p.assignment))
	if err != nil {
		return nil, err
	}
	p.awaited = awaited
	tasks := make([]consumer.Task, len(turns))
	for i, t := range turns {
		k := &taking{turnID: t.TurnID}
		tasks[i] = consumer.Task{LaneKey: t.SessionID, Run: func(ctx context.Context) error { return p.resume(ctx, k) }}
	}
	return tasks, nil
}

// taking is a turn as this worker has taken it. It is kept with the turn's effects until they are committed.
type taking struct {
	turnID string
	// rec is nil for a turn that is resumed from state.
	rec *consumer.Record
	// thrift and why are set for a turn that is taken only to be ended.
	thrift dedupe.Thrift
	why    *consumer.Refusal
	// was is how it was taken before that; nil if it was not.
	was *taking
	// known is what the turn knows. It is only used in the turn's lane.
	known *turn.Known
}

// knew is what the turn knew; nil if it did not run here.
func (k *taking) knew() *turn.Known {
	if k == nil {
		return nil
	}
	return k.known
}

// resume takes a turn that is under way in the state, unless it has ended meanwhile.
func (p *partition) resume(ctx context.Context, k *taking) error {
	j, err := p.store.Resume(k.turnID, k.thrift, k)
	if err != nil || j == nil {
		return suspended(err)
	}
	return p.run(ctx, j, k, p.assignment.Died)
}

// Handle implements consumer.PartitionHandler.
func (p *partition) Handle(ctx context.Context, rec *consumer.Record) error {
	return p.accept(ctx, &taking{turnID: rec.Event.TurnID, rec: rec})
}

func (p *partition) accept(ctx context.Context, k *taking) error {
	rec := k.rec
	agent, unfit := p.agentFor(rec)
	if k.why == nil && unfit == nil {
		if err := p.admit(ctx, rec, agent); err != nil {
			return suspended(err)
		}
	}
	parent, state := traceHeaders(rec.Headers)
	j, err := p.store.Accept(&dedupe.Input{
		Event: rec.Event, Hash: rec.Hash, Lone: rec.Lone, Origin: origin(rec, p.assignment), Timestamp: rec.Timestamp, Agent: agent, Unfit: unfit,
		Trace: parent, TraceState: state, Thrift: k.thrift, Run: k,
	})
	if err != nil {
		return suspended(err)
	}
	if j == nil {
		p.telemetry.duplicate(ctx, rec.Event.Agent)
		return nil
	}
	return p.run(ctx, j, k, rec.Suspect || j.Resumed() && p.assignment.Died)
}

// agentFor returns the agent that the turn of a record can begin with, or why it cannot begin. That says nothing of a turn that
// began before: manifest and settings may have changed since.
func (p *partition) agentFor(rec *consumer.Record) (*fact.Agent, error) {
	if rec.Refused != nil {
		return nil, rec.Refused
	}
	agent, err := p.engine.agent(rec.Event.Agent)
	if err != nil {
		return nil, err
	}
	if schema := rec.Event.OutputSchema; len(schema) > 0 {
		if err := tools.CheckAnswerSchema(schema); err != nil {
			return nil, err
		}
	}
	return agent.config, nil
}

// Begun implements consumer.Rememberer. A state that cannot be read is a matter for Handle.
func (p *partition) Begun(rec *consumer.Record) bool {
	begun, err := p.store.Begun(rec.Event.TurnID)
	return begun || err != nil
}

// Recall implements consumer.Rememberer. Handle is given what the turn is known by, and finds it under way.
func (p *partition) Recall(offset int64) (*schemas.TurnEvent, []byte) {
	t, ok := p.awaited[offset]
	if !ok {
		return nil, nil
	}
	return &schemas.TurnEvent{Type: schemas.InputTurn, TurnID: t.TurnID, SessionID: t.SessionID}, t.PayloadHash
}

func origin(rec *consumer.Record, a *consumer.Assignment) fact.Origin {
	return fact.Origin{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, TopicID: topicID(a)}
}

// topicID is the id of the input topic, empty where brokers have none.
func topicID(a *consumer.Assignment) []byte {
	if a.TopicID == [16]byte{} {
		return nil
	}
	return a.TopicID[:]
}

// run runs a turn that this worker holds to its end, under a span. A suspect is one that the last worker may have died of.
func (p *partition) run(ctx context.Context, j *dedupe.Journal, k *taking, suspected bool) (err error) {
	defer j.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, span := p.telemetry.startTurn(ctx, p.group, j.Accepted(), k.rec)
	defer func() { p.telemetry.endTurn(ctx, span, j, err) }()
	j.SetTrace(traceOf(ctx))
	j.OnCancel(func() { cancel(turn.ErrCancelled) })
	j.OnDrop(func() { cancel(statestore.ErrDropped) })
	k.known = turn.NewKnown()
	if frames := j.Frames(); len(frames) > 0 {
		span.SetAttributes(attribute.Bool("lathe.turn.resumed", j.Resumed()))
		if k.known, err = turn.Replay(frames); err != nil {
			return fmt.Errorf("resume turn %s: %w", j.Accepted().TurnID, err)
		}
	}
	loop, err := p.loop(j.Agent().Name)
	if err != nil {
		return err
	}
	t := &turn.Turn{
		Accepted: j.Accepted(), Agent: j.Agent(), History: j.History(), Known: k.known, Journal: j, Gate: p.assignment,
		Draining: p.assignment.Draining(),
	}
	if k.why != nil {
		return suspended(loop.Fail(t, k.was.knew(), refusalCode(k.why), k.why.Detail()))
	}
	if suspected {
		s := &suspect{Journal: j, probation: p.probation, draining: t.Draining}
		defer s.close()
		t.Journal, t.Suspect = s, s
	}
	return suspended(loop.Run(ctx, t))
}

// loop returns the loop of an agent. A turn under way whose agent is gone from the manifest stays as it is: it halts its
// partition with an error that says so, since ending it would lose it.
func (p *partition) loop(agent string) (*turn.Loop, error) {
	a, ok := p.engine.agents[agent]
	if !ok {
		return nil, fmt.Errorf("the manifest no longer has agent %q, which turns under way need: put it back until they have ended", agent)
	}
	return a.loop, nil
}

// Cancel implements consumer.PartitionHandler.
func (p *partition) Cancel(_ context.Context, rec *consumer.Record) error {
	if err := p.store.Cancel(rec.Event, rec.Offset); err != nil {
		return suspended(err)
	}
	p.outside.call(rec.Event)
	return nil
}

// Expire implements consumer.Expirer.
func (p *partition) Expire(ctx context.Context) (int, error) { return p.store.Expire(ctx) }

// Rejected implements consumer.PartitionHandler.
func (p *partition) Rejected(rec *consumer.Record, reason *schemas.Error) []statestore.Output {
	if rec.Event == nil || rec.Event.Type == schemas.InputCancel {
		return nil
	}
	outputs, err := p.codec.Rejected(rec.Event, origin(rec, p.assignment), reason)
	if err != nil {
		p.logger.Error("turn:rejected cannot be written; its dead letter stands alone", //nolint:sloglint // The port has no context.
			slog.String("topic", rec.Topic), slog.Int("partition", int(rec.Partition)), slog.Int64("offset", rec.Offset), slog.Any("error", err))
		return nil
	}
	return outputs
}

// suspended marks the errors that stop a turn without being anyone's fault: the partition is drained, lost or stopped, or what the
// turn did was dropped.
func suspended(err error) error {
	if errors.Is(err, statestore.ErrDropped) {
		return fmt.Errorf("%w: %w", consumer.ErrRedone, err)
	}
	for _, cause := range []error{
		consumer.ErrDraining, consumer.ErrDrainBudget, consumer.ErrLost, consumer.ErrStopped, consumer.ErrHalted, llm.ErrDraining, statestore.ErrGone, context.Canceled,
	} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%w: %w", consumer.ErrSuspended, err)
		}
	}
	return err
}
