// Package dedupe is what a repeated key means. It turns the facts of a turn into effects: state mutations, output events and
// the input offset, which commit together. From the state it tells whether a turn was seen before: unknown, under way, ended,
// or in conflict with another payload under the same id.
//
// What it promises: an event is emitted by the one effect that records its fact, so a repeated record emits nothing; facts of
// a turn are durable in the order they were recorded; and the seq of a turn's events has no gap, whoever emits them.
package dedupe

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
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
	// Worker names this worker in events. A process that is started again has the name of its predecessor.
	Worker string
	// Process names this very process in facts, so that a turn knows how many had a hand in it; Worker by default.
	Process string
	// ToolTopic and TurnTopic are the topics of tool and turn events.
	ToolTopic, TurnTopic string
	// ToolEncoder and TurnEncoder write the events of those topics.
	ToolEncoder, TurnEncoder schemas.Encoder
	// RecordBytes bounds the value of one event or state record; a fact that does not fit is refused with limit_exceeded.
	RecordBytes int
	// TurnRetention is how long ended turns and cancels without a turn are remembered, SessionRetention how long a session's
	// history is after its last turn; 0 is for ever. Both are kept to the hour, and never less.
	TurnRetention, SessionRetention time.Duration
	// SessionTurns and SessionBytes bound the history that is kept of a session: the oldest turns go, never the last; 0 is no
	// bound.
	SessionTurns, SessionBytes int
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
	// specVersion and types are header values, made once.
	specVersion []byte
	types       map[string][]byte
	clock       clock
	drafts      drafts
	sizes       sizes

	mu struct {
		sync.Mutex
		// hashes are those of the configurations that are bound here. They are few, and each is used for many turns.
		hashes map[*fact.Agent]agentBody
	}
}

// agentBody is an agent's stored form and its hash.
type agentBody struct{ body, hash []byte }

// NewCodec returns what all stores of a process share.
func NewCodec(cfg Config) (*Codec, error) {
	cfg.Process = cmp.Or(cfg.Process, cfg.Worker)
	facts, err := fact.NewCodec()
	if err != nil {
		return nil, fmt.Errorf("make the journal codec: %w", err)
	}
	c := &Codec{cfg: cfg, facts: facts, source: []byte("/lathe/" + cfg.App), specVersion: []byte("1.0"), types: make(map[string][]byte), clock: clock{now: cfg.Now}}
	for _, kind := range []string{
		schemas.TypeTurnStart, schemas.TypeTurnStep, schemas.TypeTurnEnd, schemas.TypeTurnRejected, schemas.TypeToolStart, schemas.TypeToolResult,
	} {
		c.types[kind] = []byte("run.lathe." + strings.ReplaceAll(kind, ":", "."))
	}
	c.mu.hashes = make(map[*fact.Agent]agentBody)
	c.toolHeaders = storeHeaders(cfg.ToolEncoder.Headers())
	c.turnHeaders = storeHeaders(cfg.TurnEncoder.Headers())
	return c, nil
}

// agentBody returns the stored form of a bound agent, which does not change.
func (c *Codec) agentBody(agent *fact.Agent) (agentBody, error) {
	c.mu.Lock()
	known, ok := c.mu.hashes[agent]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	body, err := c.facts.Marshal(agent)
	if err != nil {
		return agentBody{}, fmt.Errorf("store agent %s: %w", agent.Name, err)
	}
	sum := sha256.Sum256(body)
	known = agentBody{body: body, hash: sum[:]}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.hashes[agent] = known
	return known, nil
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
		// spare are entries that no turn uses.
		spare []*entry
		// agents are the configurations known to be in the state, by hash.
		agents map[string]*fact.Agent
		// underWay are the turns that have a journal, cancels the keys of cancels that overtook their turns. Both are few, and
		// nearly every turn is in neither: it is not looked for in the state.
		underWay map[string]needs
		cancels  map[string]struct{}
		// expiring are the names that an expiry has in hand; who begins to need one takes it out.
		expiring map[string]struct{}
	}
}

// entry is one turn in use. Its channel holds a token while nobody is inside.
type entry struct {
	free    chan struct{}
	waiting int
	journal *Journal
}

// Open returns the store of a partition to which no fact was added yet.
func (c *Codec) Open(state *statestore.Partition) (*Store, error) {
	s := &Store{codec: c, state: state}
	s.mu.turns = make(map[string]*entry)
	s.mu.agents = make(map[string]*fact.Agent)
	s.mu.underWay, s.mu.cancels = make(map[string]needs), make(map[string]struct{})
	s.mu.expiring = make(map[string]struct{})
	if err := state.Scan(journalPrefix, s.findUnderWay); err != nil {
		return nil, err
	}
	err := state.Scan(cancelPrefix, func(key string, _ []byte) error {
		s.mu.cancels[key] = struct{}{}
		return nil
	})
	return s, err
}

// findUnderWay notes the turn of a journal's first record.
func (s *Store) findUnderWay(key string, value []byte) error {
	if !strings.HasSuffix(key, firstRecord) {
		return nil
	}
	body, err := statestore.Body(value)
	if err != nil {
		return fmt.Errorf("read journal %s: %w", key, err)
	}
	first, err := s.codec.facts.First(body)
	if err != nil {
		return fmt.Errorf("read journal %s: %w", key, err)
	}
	a, ok := first.(*fact.Accepted)
	if !ok {
		return fmt.Errorf("read journal %s: it does not begin with an accepted turn", key)
	}
	s.mu.underWay[a.TurnID] = needsOf(a)
	return nil
}

// enter makes the caller the only one inside the turn until it calls leave. What happens inside is short: a look-up and an
// effect, never a turn's run.
func (s *Store) enter(turnID string) *entry {
	s.mu.Lock()
	e := s.mu.turns[turnID]
	if e == nil {
		e = s.newEntryLocked()
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
		if len(s.mu.spare) < spareEntries {
			s.mu.spare = append(s.mu.spare, e)
		}
	}
}

// spareEntries is how many entries are kept to be used again.
const spareEntries = 64

// newEntryLocked gives an entry that is free, and in no map.
func (s *Store) newEntryLocked() *entry {
	if last := len(s.mu.spare) - 1; last >= 0 {
		e := s.mu.spare[last]
		s.mu.spare = s.mu.spare[:last]
		return e
	}
	e := &entry{free: make(chan struct{}, 1)}
	e.free <- struct{}{}
	return e
}
