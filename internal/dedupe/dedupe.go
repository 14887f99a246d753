// Package dedupe is what a repeated key means. It turns the facts of a turn into effects: state mutations, output events and
// the input offset, which commit together. From the state it tells whether a turn was seen before: unknown, under way, ended,
// or in conflict with another payload under the same id.
//
// What it promises: an event is emitted by the one effect that records its fact, so a repeated record emits nothing; facts of
// a turn are durable in the order they were recorded; and the seq of a turn's events has no gap, whoever emits them.
package dedupe

import (
	"fmt"
	"sync"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Config is what all stores of a process share.
type Config struct {
	// App names the deployment; it makes the source of events.
	App string
	// Worker names this process in events.
	Worker string
	// ToolTopic and TurnTopic are the topics of tool and turn events.
	ToolTopic, TurnTopic string
	// ToolEncoder and TurnEncoder write the events of those topics.
	ToolEncoder, TurnEncoder schemas.Encoder
	// RecordBytes bounds the value of one event or state record; a fact that does not fit is refused with limit_exceeded.
	RecordBytes int
	// Now is the clock that stored times come from.
	Now func() time.Time
}

// Codec makes the stores of a process's partitions.
type Codec struct {
	cfg         Config
	facts       *fact.Codec
	toolHeaders []statestore.Header
	turnHeaders []statestore.Header
	source      []byte
}

// NewCodec returns what all stores of a process share.
func NewCodec(cfg Config) (*Codec, error) {
	facts, err := fact.NewCodec()
	if err != nil {
		return nil, fmt.Errorf("make the journal codec: %w", err)
	}
	c := &Codec{cfg: cfg, facts: facts, source: []byte("/lathe/" + cfg.App)}
	c.toolHeaders = storeHeaders(cfg.ToolEncoder.Headers())
	c.turnHeaders = storeHeaders(cfg.TurnEncoder.Headers())
	return c, nil
}

func storeHeaders(hs []schemas.Header) []statestore.Header {
	out := make([]statestore.Header, len(hs))
	for i, h := range hs {
		out[i] = statestore.Header(h)
	}
	return out
}

// Store is the dedupe state of one assignment of a partition. It is safe for concurrent use.
type Store struct {
	codec *Codec
	state *statestore.Partition

	mu struct {
		sync.Mutex
		// turns are those that are looked up or run right now; entering one waits for who is in it.
		turns map[string]*entry
		// agents are the configurations known to be in the state, by hash.
		agents map[string]*fact.Agent
	}
}

// entry is one turn in use. Its channel holds a token while nobody is inside.
type entry struct {
	free    chan struct{}
	waiting int
	journal *Journal
}

// Open returns the store of a partition.
func (c *Codec) Open(state *statestore.Partition) *Store {
	s := &Store{codec: c, state: state}
	s.mu.turns = make(map[string]*entry)
	s.mu.agents = make(map[string]*fact.Agent)
	return s
}

// enter makes the caller the only one inside the turn until it calls leave. What happens inside is short: a look-up and an
// effect, never a turn's run.
func (s *Store) enter(turnID string) *entry {
	s.mu.Lock()
	e := s.mu.turns[turnID]
	if e == nil {
		e = &entry{free: make(chan struct{}, 1)}
		e.free <- struct{}{}
		s.mu.turns[turnID] = e
	}
	e.waiting++
	s.mu.Unlock()
	<-e.free
	return e
}

func (s *Store) leave(turnID string, e *entry) {
	e.free <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.waiting--; e.waiting == 0 && e.journal == nil {
		delete(s.mu.turns, turnID)
	}
}
