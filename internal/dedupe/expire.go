package dedupe

import (
	"context"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
)

// Classes of what expires, as the store notes them.
const (
	classTurn    byte = 't'
	classSession byte = 's'
)

// Age tells the state store what expires. It is the Age of the store's configuration.
func Age(key string, value []byte) (statestore.Aged, bool) {
	at, ok := stampOf(value)
	if !ok || key == "" {
		return statestore.Aged{}, false
	}
	switch key[:1] {
	case turnPrefix, cancelPrefix, agentPrefix:
		return statestore.Aged{Class: classTurn, At: at, Name: key}, true
	case historyLetter:
		if !isFirstPart(key) {
			return statestore.Aged{}, false
		}
		return statestore.Aged{Class: classSession, At: at, Name: sessionOf(key)}, true
	}
	return statestore.Aged{}, false
}

// needs is what a turn under way must find in the state: neither its session nor its agent's configuration expires under it.
type needs struct {
	session   string
	agentHash []byte
}

func needsOf(a *fact.Accepted) needs { return needs{session: a.SessionID, agentHash: a.AgentHash} }

// names are what is needed as an expiry names it.
func (n needs) names() [2]string {
	return [...]string{historyPrefix(n.session), agentKey(n.agentHash)}
}

// begun notes that a turn is under way before anything of the state is read for it: what it needs is not to expire any more.
func (s *Store) begun(turnID string, n needs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.underWay[turnID] = n
	if len(s.mu.expiring) > 0 { // Which is seldom: most turns make no names.
		for _, name := range n.names() {
			delete(s.mu.expiring, name)
		}
	}
}

func (s *Store) over(turnID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.underWay, turnID)
}

func (s *Store) isUnderWay(turnID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, under := s.mu.underWay[turnID]
	return under
}

// expireNames is how many names one effect expires at most. The committer looks each of its keys up, so an effect costs it about a
// millisecond.
const expireNames = 200

// Expire removes what has outlived its retention, oldest first: ended turns, cancels that never met their turn, configurations
// that no turn under way needs, sessions. Each effect is bounded and is committed before the next is added, and none hurries the
// commit cycle. It returns how many names went, when nothing more is due, ctx ends or the partition is gone. One call at a time.
func (s *Store) Expire(ctx context.Context) (int, error) {
	now, known := s.codec.clock.time()
	if !known {
		return 0, nil
	}
	total := 0
	for _, c := range []struct {
		class byte
		keep  time.Duration
	}{{classTurn, s.codec.cfg.TurnRetention}, {classSession, s.codec.cfg.SessionRetention}} {
		if c.keep <= 0 {
			continue
		}
		n, err := s.expireClass(ctx, c.class, now.Add(-c.keep))
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

func (s *Store) expireClass(ctx context.Context, class byte, before time.Time) (int, error) {
	sweep := sweep{store: s, before: before}
	var note statestore.Note
	for ctx.Err() == nil {
		next, found, err := s.state.NextNote(class, before, note)
		if err != nil {
			return sweep.expired, err
		}
		if !found {
			return sweep.expired, sweep.flush(ctx)
		}
		note = next
		if err := sweep.note(ctx, note); err != nil {
			return sweep.expired, err
		}
	}
	return sweep.expired, nil
}

// sweep gathers effects of an expiry.
type sweep struct {
	store   *Store
	before  time.Time
	expired int

	// What follows is of the effect being gathered.

	doomed []doomed
	done   []doneNote
	names  int
}

// doomed is a name that expires, the keys that go with it, and what its note has to keep.
type doomed struct {
	name string
	keys []string
	left *[]string
}

// doneNote is a note that was gone through, and what it has to keep.
type doneNote struct {
	note statestore.Note
	left *[]string
}

// note goes through one note, in as many effects as it takes. Only the last of them touches the note: should the worker die in
// between, what is gone already is not found again.
func (w *sweep) note(ctx context.Context, n statestore.Note) error {
	left := &[]string{}
	names := n.Names
	for len(names) > 0 && ctx.Err() == nil {
		if w.names >= expireNames {
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
		piece := names[:min(len(names), expireNames-w.names)]
		names = names[len(piece):]
		if err := w.take(piece, left); err != nil {
			return err
		}
	}
	if len(names) == 0 && len(*left) < len(n.Names) {
		w.done = append(w.done, doneNote{note: n, left: left})
	}
	return nil
}

// take finds out which of some names expire. Those that a turn needs are left for another time.
func (w *sweep) take(names []string, left *[]string) error {
	free, needed := w.store.claim(names)
	*left = append(*left, needed...)
	w.names += len(names)
	for _, name := range free {
		keys, err := w.store.outlived(name, w.before)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			w.doomed = append(w.doomed, doomed{name: name, keys: keys, left: left})
		}
	}
	return nil
}

// claim marks the names that no turn under way needs: until they are gone, whoever begins to need one takes it back.
func (s *Store) claim(names []string) (free, needed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inUse := make(map[string]struct{}, 2*len(s.mu.underWay))
	for _, n := range s.mu.underWay {
		for _, name := range n.names() {
			inUse[name] = struct{}{}
		}
	}
	for _, name := range names {
		if _, used := inUse[name]; used {
			needed = append(needed, name)
			continue
		}
		s.mu.expiring[name] = struct{}{}
		free = append(free, name)
	}
	return free, needed
}

// outlived returns the keys that go with a name: none when it is gone already, or was current after a time, which another note
// says then.
func (s *Store) outlived(name string, before time.Time) ([]string, error) {
	if name[:1] == historyLetter {
		return s.outlivedSession(name, before)
	}
	value, found, err := s.state.Get(name)
	if err != nil || !found {
		return nil, err
	}
	if at, ok := stampOf(value); !ok || !at.Before(before) {
		return nil, nil
	}
	return []string{name}, nil
}

// outlivedSession looks at the last turn first, so that a session which goes on is not read as a whole for each of its turns.
func (s *Store) outlivedSession(prefix string, before time.Time) ([]string, error) {
	_, value, found, err := s.state.Last(prefix)
	if err != nil || !found {
		return nil, err
	}
	if at, ok := stampOf(value); !ok || !at.Before(before) {
		return nil, nil
	}
	var keys []string
	lives := false
	err = s.state.Scan(prefix, func(key string, value []byte) error {
		at, ok := stampOf(value)
		lives = lives || !ok || !at.Before(before)
		keys = append(keys, key)
		return nil
	})
	if err != nil || lives {
		return nil, err
	}
	return keys, nil
}

// flush adds what was gathered as one effect and waits for its commit.
func (w *sweep) flush(ctx context.Context) error {
	if len(w.doomed)+len(w.done) == 0 {
		w.names = 0
		return nil
	}
	settled := make(chan error, 1)
	e := &statestore.Effect{Offset: statestore.NoOffset, Settled: func(err error) { settled <- err }}
	if err := w.store.remove(w, e); err != nil {
		return err
	}
	w.doomed, w.done, w.names = w.doomed[:0], w.done[:0], 0
	select {
	case err := <-settled:
		return err
	case <-ctx.Done():
		return nil
	}
}

// remove adds the effect. The lock is held from the last look at what is still to go until the effect stands in the queue, so that
// whoever needs one of the names from then on finds it gone.
func (s *Store) remove(w *sweep, e *statestore.Effect) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range w.doomed {
		if _, still := s.mu.expiring[d.name]; !still {
			*d.left = append(*d.left, d.name)
			continue
		}
		for _, key := range d.keys {
			e.Mutations = append(e.Mutations, statestore.Mutation{Op: statestore.OpDelete, Key: key})
		}
		s.forgetLocked(d.name)
		w.expired++
	}
	clear(s.mu.expiring)
	for _, d := range w.done {
		e.Mutations = append(e.Mutations, d.note.Done(*d.left))
	}
	return s.state.Add(e)
}

// forgetLocked drops what is kept in memory of a name.
func (s *Store) forgetLocked(name string) {
	switch name[:1] {
	case cancelPrefix:
		delete(s.mu.cancels, name)
	case agentPrefix:
		delete(s.mu.agents, agentHash(name))
	}
}
