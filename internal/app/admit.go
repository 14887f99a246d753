package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// errCalled is why a turn need not wait outside any more: it is cancelled, or its deadline has passed.
var errCalled = errors.New("the turn can end without its model")

// outside are the turns that wait to begin because their model is down.
type outside struct {
	mu struct {
		sync.Mutex
		turns map[outsider]context.CancelCauseFunc
	}
}

// outsider is a turn as a cancel names it: that of another session means another turn.
type outsider struct{ turn, session string }

func (o *outside) enter(ev *schemas.TurnEvent, call context.CancelCauseFunc) (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := outsider{ev.TurnID, ev.SessionID}
	o.mu.turns[key] = call
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.mu.turns, key)
	}
}

// call ends the wait of the turn that a cancel names, if it waits.
func (o *outside) call(cancel *schemas.TurnEvent) {
	o.mu.Lock()
	call := o.mu.turns[outsider{cancel.TurnID, cancel.SessionID}]
	o.mu.Unlock()
	if call != nil {
		call(errCalled)
	}
}

// admit returns when the turn of a record may be accepted. While the model of its agent is down a turn that has not begun waits
// outside: nothing of it is recorded and its time does not run, so that an outage fails no turn. What needs no model does not
// wait: a record that repeats a turn, and a turn that is cancelled or whose deadline has passed.
func (p *partition) admit(ctx context.Context, rec *consumer.Record, agent *fact.Agent) error {
	if !p.engine.models.Down(agent.Model.Name) {
		return nil
	}
	ev := rec.Event
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if ev.Deadline != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, *ev.Deadline, errCalled)
		defer stop()
	}
	leave := p.outside.enter(ev, cancel) // First, so that a cancel is either known below or calls.
	defer leave()
	known, err := p.store.Known(ev.TurnID, ev.SessionID)
	if err != nil || known {
		return err
	}
	if err := p.engine.models.Admit(ctx, agent.Model.Name, p.assignment.Draining()); err != nil && !errors.Is(err, errCalled) {
		return fmt.Errorf("wait for the model %s: %w", agent.Model.Name, err)
	}
	return nil
}
