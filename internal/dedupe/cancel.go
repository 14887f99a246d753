package dedupe

import (
	"errors"
	"fmt"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Cancel records a cancel event with its offset, and applies it at once: to the turn that runs here, to the journal of one
// that waits, or to one that is yet to come. For an ended turn only the offset is recorded. A cancel of another session's turn
// is a *schemas.Error, code invalid_turn.
func (s *Store) Cancel(ev *schemas.TurnEvent, offset int64) error {
	id := ev.TurnID
	e := s.enter(id)
	defer s.leave(id, e)
	c := &fact.Cancelled{Reason: ev.Reason, At: s.codec.cfg.Now()}
	if e.journal != nil {
		err := e.journal.cancel(ev.SessionID, c, offset)
		if !errors.Is(err, statestore.ErrDropped) {
			return unfit(err)
		}
		if e.journal.isRedone() {
			return s.remember(id, ev.SessionID, c, offset)
		}
		return s.done(offset) // It is about to end.
	}
	ended, err := s.ended(id)
	if err != nil {
		return err
	}
	if ended != nil {
		return s.done(offset)
	}
	j, err := s.resume(id)
	if err != nil {
		return err
	}
	if j != nil {
		return unfit(j.cancel(ev.SessionID, c, offset))
	}
	return s.remember(id, ev.SessionID, c, offset)
}

// done completes an offset that nothing else comes of.
func (s *Store) done(offset int64) error {
	return s.state.Add(&statestore.Effect{Offset: offset, Urgent: true})
}

// overtaking owns the effect of a cancel whose turn is unknown yet.
type overtaking struct {
	turn, session string
	cancel        *fact.Cancelled
	offset        int64
}

// LaneKey is the session.
func (o *overtaking) LaneKey() string { return o.session }

// remember stores a cancel whose turn is unknown yet.
func (s *Store) remember(turn, session string, c *fact.Cancelled, offset int64) error {
	body, err := s.codec.facts.Marshal(c)
	if err != nil {
		return fmt.Errorf("store a cancel: %w", err)
	}
	// Its turn's journal has to take it as well, with a few bytes around it.
	if limit := s.codec.cfg.RecordBytes; len(body)+stampSize+64 > limit {
		return unfit(tooLarge("the cancel", len(body), limit))
	}
	key := cancelKey(turn, session)
	s.overtook(key)
	at := c.At
	if producers, known := s.codec.clock.producers(); known {
		at = later(at, producers)
	}
	return s.state.Add(&statestore.Effect{
		Mutations: []statestore.Mutation{{Op: statestore.OpSet, Key: key, Value: append(stamped(at, len(body)), body...)}},
		Offset:    offset, Urgent: true, Owner: &overtaking{turn: turn, session: session, cancel: c, offset: offset},
	})
}

// overtook notes that the state has a cancel of a turn that is yet to come.
func (s *Store) overtook(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.cancels[key] = struct{}{}
	delete(s.mu.expiring, key)
}

// overtaken returns the key of a cancel that overtook a turn, or nothing. There are hardly ever any.
func (s *Store) overtaken(turnID, session string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.cancels) == 0 {
		return ""
	}
	key := cancelKey(turnID, session)
	if _, noted := s.mu.cancels[key]; !noted {
		return ""
	}
	return key
}

// cancel records a cancel of the journal's turn. Only the first says anything.
func (j *Journal) cancel(session string, c *fact.Cancelled, offset int64) error {
	if session != j.accepted.SessionID {
		return &schemas.Error{Code: schemas.CodeInvalidTurn, Path: "session_id", Message: "the turn to cancel belongs to another session"}
	}
	stop, err := j.cancelOnce(c, &statestore.Effect{Offset: offset, Urgent: true})
	if err == nil && stop != nil {
		stop()
	}
	return err
}

// cancelOnce records the cancel unless the turn has ended or was cancelled before, which is found out and acted upon as one. It
// returns what stops the turn's run.
func (j *Journal) cancelOnce(c *fact.Cancelled, e *statestore.Effect) (stop func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.dropped {
		return nil, fmt.Errorf("record a cancel of turn %s: %w", j.accepted.TurnID, statestore.ErrDropped)
	}
	if j.mu.ended != nil || j.mu.cancelled {
		return nil, j.store.state.Add(e)
	}
	if err := j.addLocked(e, c); err != nil {
		return nil, err
	}
	j.mu.cancelled, j.mu.cancel, j.mu.cancelOffset = true, c, e.Offset
	return j.mu.onCancel, nil
}

// recallCancel returns a cancel that overtook the turn, or nil.
func (s *Store) recallCancel(a *fact.Accepted) (*fact.Cancelled, error) {
	key := s.overtaken(a.TurnID, a.SessionID)
	if key == "" {
		return nil, nil //nolint:nilnil // Nobody cancelled it, which is no error.
	}
	v, found, err := s.state.Get(key)
	if err != nil || !found {
		return nil, err
	}
	body, err := stampedBody(v)
	if err != nil {
		return nil, fmt.Errorf("read a cancel of turn %s: %w", a.TurnID, err)
	}
	var c fact.Cancelled
	if err := s.codec.facts.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("read a cancel of turn %s: %w", a.TurnID, err)
	}
	return &c, nil
}
