package dedupe

import (
	"errors"
	"fmt"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
)

// Thrift is how much a turn's records do without. It rises each time that the broker refuses one.
type Thrift uint8

const (
	// ThriftNone leaves nothing out.
	ThriftNone Thrift = iota
	// ThriftSmall keeps a session's history in small parts.
	ThriftSmall
	// ThriftBare has no metadata in events, cuts messages and keeps no history.
	ThriftBare
)

const (
	// thriftyPart is the size of a part of the history under ThriftSmall, thriftyMessage the longest message under ThriftBare.
	thriftyPart    = 8 << 10
	thriftyMessage = 256
)

// Refused is what has become of the effects that a refused record belongs to.
type Refused struct {
	// Turn is the one whose record was refused, as it was recorded here last; nil when nothing is left to do. It must be ended: what
	// it had committed still stands.
	Turn *Journal
	// Unborn says that the broker refuses what accepts the turn, so that it cannot even begin.
	Unborn bool
	// Again are the turns of its session that came later and have read what is dropped, in order. They begin again.
	Again []*Journal
}

// Refuse drops what is not committed of the turn that an effect belongs to, and of later turns of its session. The offsets of cancel
// events among it stay done. It is called between two cycles. An error says that there is nothing smaller to try.
func (s *Store) Refuse(refused *statestore.Effect) (Refused, error) {
	switch owner := refused.Owner.(type) {
	case *Journal:
		if owner.thrift == ThriftBare {
			return Refused{}, fmt.Errorf("turn %s cannot even be ended", owner.accepted.TurnID)
		}
		return s.refuse(owner, refused)
	case *overtaking:
		return Refused{}, s.refuseCancel(owner)
	}
	return Refused{}, errors.New("the record belongs to no turn")
}

func (s *Store) refuse(j *Journal, refused *statestore.Effect) (Refused, error) {
	id := j.accepted.TurnID
	e := s.enter(id)
	defer s.leave(id, e)
	mine, earlier := s.split(j)
	if err := s.drop(false, mine...); err != nil {
		return Refused{}, err
	}
	// A turn that is being accepted right now has queued its first effect and is found below, or has not and is told by AddSince that
	// it must read again.
	later := s.later(j, earlier)
	if err := s.drop(true, later...); err != nil {
		return Refused{}, err
	}
	if len(mine) == 0 { // It went with an earlier turn, and begins again.
		return Refused{Again: later}, nil
	}
	return Refused{Turn: mine[0], Unborn: refused == j.first, Again: later}, nil
}

// split lists the journals with uncommitted effects that are of j's turn, that which runs it first, and those of earlier turns of
// its session.
func (s *Store) split(j *Journal) (mine []*Journal, earlier map[*Journal]bool) {
	earlier = make(map[*Journal]bool)
	for _, o := range s.state.Owners() {
		switch other, ok := o.(*Journal); {
		case !ok || other.accepted.SessionID != j.accepted.SessionID:
		case other.accepted.TurnID != j.accepted.TurnID:
			if len(mine) == 0 {
				earlier[other] = true
			}
		case other.run != nil: // The others are of cancels that came while it did not run.
			mine = append([]*Journal{other}, mine...)
		default:
			mine = append(mine, other)
		}
	}
	return mine, earlier
}

func (s *Store) later(j *Journal, earlier map[*Journal]bool) (later []*Journal) {
	for _, o := range s.state.Owners() {
		if other, ok := o.(*Journal); ok && other.accepted.SessionID == j.accepted.SessionID && !earlier[other] {
			later = append(later, other)
		}
	}
	return later
}

// drop drops the effects of journals, after which nothing can be added to them.
func (s *Store) drop(again bool, journals ...*Journal) error {
	owners := make([]any, len(journals))
	stops := make([]func(), len(journals))
	for i, j := range journals {
		owners[i], stops[i] = j, j.markDropped(again)
	}
	s.state.Drop(owners...)
	for i, j := range journals {
		if stop := stops[i]; stop != nil {
			stop()
		}
		if err := s.forgetDropped(j, again); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) markDropped(again bool) (stop func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.dropped, j.mu.redone = true, again
	return j.mu.onDrop
}

func (j *Journal) isRedone() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.redone
}

// forgetDropped makes what is kept in memory agree with the state again, and does for the offset of a dropped cancel what it asks
// for.
func (s *Store) forgetDropped(j *Journal, again bool) error {
	a := j.accepted
	bodies, err := s.state.Log(journalKey(a.TurnID))
	if err != nil {
		return err
	}
	if len(bodies) > 0 {
		s.begun(a.TurnID, needsOf(a))
	} else {
		s.over(a.TurnID)
	}
	j.mu.Lock()
	cancel, offset := j.mu.cancel, j.mu.cancelOffset
	j.mu.Unlock()
	switch {
	case cancel == nil:
		return nil
	case again:
		return s.remember(a.TurnID, a.SessionID, cancel, offset)
	}
	return s.done(offset)
}

// refuseCancel remembers a cancel without its reason.
func (s *Store) refuseCancel(o *overtaking) error {
	if o.cancel.Reason == "" {
		return fmt.Errorf("the cancel of turn %s cannot be stored", o.turn)
	}
	if len(s.state.Drop(o)) == 0 {
		return nil
	}
	return s.remember(o.turn, o.session, &fact.Cancelled{At: o.cancel.At}, o.offset)
}
