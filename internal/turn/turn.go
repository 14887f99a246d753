// Package turn runs one turn of an agent: the loop of model responses and tool calls, from what was accepted to its end. It
// does no I/O of its own: the model, the tools and the journal are ports, and what it decides depends on what they answer
// and on nothing else. Resuming a turn is the same loop, fed from what the journal holds until that runs dry.
//
// What it promises: nothing is asked of a model twice once its answer is recorded; no call runs twice once its result is
// recorded; a call that can change something runs only after its start is durable; and no turn ends while a call that
// started has no finish.
package turn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// ErrCancelled is the cause to cancel a turn's context with when a cancel event asks for its end.
var ErrCancelled = errors.New("the turn was cancelled")

// errDeadline is the cause when the turn's time is over.
var errDeadline = errors.New("the turn's time is over")

// Model answers requests. An error is a *schemas.Error, or the cause of the context when that was cancelled.
type Model interface {
	Respond(ctx context.Context, req *fact.Request) (*fact.Response, error)
}

// Tools are the bound tools of one agent.
type Tools interface {
	// Offer returns what a turn offers its model: of the recorded tools those that are still bound and that the narrowing
	// names. A narrowing that names a tool the agent does not have is a *schemas.Error.
	Offer(narrow []string, narrowed bool, recorded []fact.Tool) (Offer, error)
	// Execute runs a call that has started. When the context ends first it returns the context's cause, and what the tool
	// still does is thrown away. An error with a method NotBegun() bool that gives true says that nothing has run at all.
	Execute(ctx context.Context, call *fact.Call, inv fact.Invocation) (fact.Result, error)
}

// Offer is a fixed set of tools.
type Offer interface {
	Specs() []fact.ToolSpec
	// Prepare checks a call that a model asked for. It returns the call, ready to start, or the result of one that cannot.
	Prepare(asked fact.Asked, ref fact.Ref) (*fact.Call, *fact.Result)
}

// Journal records the facts of one turn, in order. It is safe for concurrent use.
type Journal interface {
	// Add records facts as one; they become durable with the next commit.
	Add(facts ...fact.Fact) error
	// Commit records facts as one and returns when they are durable, with all that came before.
	Commit(ctx context.Context, facts ...fact.Fact) error
}

// Gate says whether something may still begin. It is asked just before a model request and just before a tool call.
type Gate interface {
	Permit(ctx context.Context) error
}

// Config is what a Loop needs beside its ports.
type Config struct {
	// Worker names this process in facts.
	Worker string
	// Now is the clock that stored times come from.
	Now func() time.Time
	// CheckOutput checks a final answer against the turn's output schema. It returns a *schemas.Error that says where.
	CheckOutput func(schema, output []byte) error
	Logger      *slog.Logger
}

// Loop runs turns of one agent. It is safe for concurrent use.
type Loop struct {
	cfg   Config
	model Model
	tools Tools
}

// New returns the loop of an agent with that model and those tools.
func New(cfg Config, model Model, tools Tools) *Loop {
	return &Loop{cfg: cfg, model: model, tools: tools}
}

// Turn is one turn to run.
type Turn struct {
	Accepted *fact.Accepted
	Agent    *fact.Agent
	// History is what the session said before.
	History []fact.Message
	// Known is what the journal holds of the turn already.
	Known   *Known
	Journal Journal
	Gate    Gate
	// Draining is closed when nothing may begin any more; nil never is. A model that waits to ask again gives up then.
	Draining <-chan struct{}
	// Suspect, when not nil, says that the last worker may have died of this turn: its starts are counted.
	Suspect Suspect
}

// Run runs the turn to its end. It returns nil when the end is recorded, or what stopped it before: the gate's error, the
// journal's, or the cause of ctx when the worker itself cancelled it. Then the turn can be resumed.
func (l *Loop) Run(ctx context.Context, t *Turn) (err error) {
	r := &run{loop: l, turn: t, known: t.Known}
	defer func() {
		if p := recover(); p != nil {
			l.cfg.Logger.ErrorContext(ctx, "turn panicked", slog.String("turn_id", t.Accepted.TurnID), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = r.end(failed(schemas.CodeInternal, "the worker failed while it ran this turn"))
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, r.deadline().Sub(l.cfg.Now()), errDeadline)
	defer cancel()
	v, err := r.steps(ctx)
	if err != nil {
		if v = r.stoppedBy(ctx); v == nil {
			return err
		}
	}
	return r.end(v)
}

// stoppedBy is the verdict of a context that the turn itself ended: its cancel event or its deadline. It is nil for any other
// cause, which is the worker's.
func (r *run) stoppedBy(ctx context.Context) *verdict {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrCancelled):
		return &verdict{status: schemas.StatusCancelled, code: schemas.CodeCancelled, message: "a cancel event asked for the turn's end"}
	case errors.Is(cause, errDeadline):
		v := failed(schemas.CodeDeadlineExceeded, "the limit duration of %s is reached", r.turn.Agent.Limits.Duration)
		if d := r.turn.Accepted.Deadline; d.Equal(r.deadline()) {
			v.message = "the turn's deadline has passed"
		}
		v.output = r.partial()
		return v
	}
	return nil
}

// verdict is how a turn ends.
type verdict struct {
	status  string
	code    schemas.Code
	message string
	output  []byte
}

func failed(code schemas.Code, format string, args ...any) *verdict {
	return &verdict{status: schemas.StatusFailed, code: code, message: fmt.Sprintf(format, args...)}
}
