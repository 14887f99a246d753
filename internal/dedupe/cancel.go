package dedupe

import (
	"fmt"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// memo is a cancel that overtook its turn.
type memo struct {
	Session   string         `cbor:"1,keyasint"`
	Cancelled fact.Cancelled `cbor:"2,keyasint"`
}

// Cancel records a cancel event with its offset, and applies it at once: to the turn that runs here, to the journal of one
// that waits, or to one that is yet to come. For an ended turn only the offset is recorded. A cancel of another session's turn
// is a *schemas.Error, code invalid_turn.
func (s *Store) Cancel(ev *schemas.TurnEvent, offset int64) error {
	id := ev.TurnID
	e := s.enter(id)
	defer s.leave(id, e)
	c := &fact.Cancelled{Reason: ev.Reason, At: s.codec.cfg.Now()}
	if e.journal != nil {
		return e.journal.cancel(ev.SessionID, c, offset)
	}
	ended, err := s.ended(id)
	if err != nil {
		return err
	}
	if ended != nil {
		return s.state.Add(&statestore.Effect{Offset: offset, Urgent: true})
	}
	j, err := s.resume(id)
	if err != nil {
		return err
	}
	if j != nil {
		return j.cancel(ev.SessionID, c, offset)
	}
	s.state.Forget(journalKey(id))
	return s.remember(ev, c, offset)
}

// remember stores a cancel whose turn is unknown yet.
func (s *Store) remember(ev *schemas.TurnEvent, c *fact.Cancelled, offset int64) error {
	body, err := s.codec.facts.Marshal(&memo{Session: ev.SessionID, Cancelled: *c})
	if err != nil {
		return fmt.Errorf("store a cancel: %w", err)
	}
	return s.state.Add(&statestore.Effect{
		Mutations: []statestore.Mutation{{Op: statestore.OpSet, Key: cancelKey(ev.TurnID), Value: append([]byte{statestore.Format}, body...)}},
		Offset:    offset, Urgent: true,
	})
}

// cancel records a cancel of the journal's turn. Only the first says anything.
func (j *Journal) cancel(session string, c *fact.Cancelled, offset int64) error {
	if session != j.accepted.SessionID {
		return &schemas.Error{Code: schemas.CodeInvalidTurn, Path: "session_id", Message: "the turn to cancel belongs to another session"}
	}
	j.mu.Lock()
	silent := j.mu.ended != nil || j.mu.cancelled
	j.mu.Unlock()
	e := &statestore.Effect{Offset: offset, Urgent: true}
	if silent {
		return j.store.state.Add(e)
	}
	if err := j.add(e, c); err != nil {
		return err
	}
	j.mu.Lock()
	j.mu.cancelled = true
	stop := j.mu.onCancel
	j.mu.Unlock()
	if stop != nil {
		stop()
	}
	return nil
}

// recallCancel applies a cancel that overtook the turn.
func (s *Store) recallCancel(j *Journal) error {
	v, found, err := s.state.Get(cancelKey(j.accepted.TurnID))
	if err != nil || !found {
		return err
	}
	body, err := statestore.Body(v)
	if err != nil {
		return fmt.Errorf("read a cancel of turn %s: %w", j.accepted.TurnID, err)
	}
	var m memo
	if err := s.codec.facts.Unmarshal(body, &m); err != nil {
		return fmt.Errorf("read a cancel of turn %s: %w", j.accepted.TurnID, err)
	}
	if m.Session != j.accepted.SessionID {
		return nil
	}
	if err := j.Add(&m.Cancelled); err != nil {
		return err
	}
	j.mu.Lock()
	j.mu.cancelled = true
	j.mu.Unlock()
	j.frames = append(j.frames, fact.Frame{Fact: j.accepted}, fact.Frame{Fact: &m.Cancelled})
	return nil
}
