package dedupe

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Input is a turn event as it came, with the agent as it is bound now.
type Input struct {
	Event *schemas.TurnEvent
	Hash  []byte
	// Lone says that the event names no session: its turn keeps nothing for others.
	Lone   bool
	Origin fact.Origin
	// Timestamp is the record's; it tells how late it is for what expires.
	Timestamp time.Time
	// Agent must not be changed once it was given, and be the same value for all turns of one configuration.
	Agent *fact.Agent
	// Unfit is why the event cannot begin a turn, such as that there is no agent of its name any more; Agent is not used then. It
	// says nothing of a turn that is under way or has ended.
	Unfit error
	// Trace and TraceState are the producer's trace context.
	Trace, TraceState string
	// Thrift is above ThriftNone for a turn that is taken only to be ended, because the broker has refused a record of it.
	Thrift Thrift
	// Run is kept with the turn's effects for as long as they are not committed; Journal.Run gives it.
	Run any
}

// Accept looks a turn up and takes it. It returns the journal of a turn that has to run, new or resumed. It returns nil when
// there is nothing to run: the turn has ended and the offset is recorded. A turn known with another payload, from another place, is a
// *schemas.Error, code conflict; one that would not fit a record, code too_large. An event that is
// not of a known turn, or not its payload, is refused with in.Unfit if that is set.
func (s *Store) Accept(in *Input) (*Journal, error) {
	id := in.Event.TurnID
	s.codec.clock.see(in.Timestamp)
	e := s.enter(id)
	defer s.leave(id, e)
	if e.journal != nil {
		return nil, in.refusal(schemas.Errorf(schemas.CodeConflict, "turn_id is running under another session"))
	}
	ended, err := s.ended(id)
	if err != nil {
		return nil, err
	}
	if ended != nil {
		return nil, s.repeat(in, ended.hash)
	}
	j, err := s.resume(id)
	if err != nil {
		return nil, err
	}
	if j != nil && !in.brings(j.accepted) {
		s.state.Forget(journalKey(id))
		return nil, in.refusal(conflict())
	}
	if j != nil {
		j.take(in)
	}
	for j == nil {
		j, err = s.begin(in)
		if errors.Is(err, statestore.ErrStale) { // It may have read history that is no longer there.
			continue
		}
		if err != nil {
			s.state.Forget(journalKey(id))
			return nil, unfit(err)
		}
	}
	e.journal = j
	return j, nil
}

// take notes what the journal is taken with, before the first effect of it is seen by others.
func (j *Journal) take(in *Input) {
	j.origin, j.thrift, j.run, j.stamp = in.Origin, in.Thrift, in.Run, later(j.stamp, in.Timestamp)
}

// Known reports whether there is something to do for a turn other than to begin it: it is under way, has ended, or a cancel has
// overtaken it.
func (s *Store) Known(turnID, session string) (bool, error) {
	if s.overtaken(turnID, session) != "" {
		return true, nil
	}
	return s.Begun(turnID)
}

// Begun reports whether a turn is under way or has ended.
func (s *Store) Begun(turnID string) (bool, error) {
	if s.isUnderWay(turnID) {
		return true, nil
	}
	ended, err := s.ended(turnID)
	return ended != nil, err
}

// Resume takes a turn that is under way in the state and whose record will not be delivered again. It returns nil when the turn has
// ended meanwhile. Thrift and run are as in Input.
func (s *Store) Resume(turnID string, thrift Thrift, run any) (*Journal, error) {
	e := s.enter(turnID)
	defer s.leave(turnID, e)
	if e.journal != nil {
		return nil, fmt.Errorf("resume turn %s: it runs already", turnID)
	}
	ended, err := s.ended(turnID)
	if err != nil || ended != nil {
		return nil, err
	}
	j, err := s.resume(turnID)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, fmt.Errorf("resume turn %s: the state has no journal of it", turnID)
	}
	j.origin.Offset, j.thrift, j.run = statestore.NoOffset, thrift, run
	e.journal = j
	return j, nil
}

// refusal is why an event is refused: what is wrong with it by itself comes first.
func (in *Input) refusal(otherwise *schemas.Error) error {
	if in.Unfit != nil {
		return in.Unfit
	}
	return otherwise
}

// brings reports whether the event is that of a turn under way: it has its payload, or stands where the turn began. What a record is
// read as may change with the schema that a registry has for it, or with the release; its place does not.
func (in *Input) brings(a *fact.Accepted) bool {
	return bytes.Equal(a.PayloadHash, in.Hash) ||
		in.Origin.Offset == a.Origin.Offset && !elsewhere(in.Origin.TopicID, a.Origin.TopicID) && in.Event.SessionID == a.SessionID
}

// elsewhere reports whether two ids are of different topics; an empty one is not known.
func elsewhere(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && !bytes.Equal(a, b) }

func conflict() *schemas.Error {
	return schemas.Errorf(schemas.CodeConflict, "turn_id was used before with another payload; every request needs an id of its own")
}

// unfit makes the reason of a dead letter of a limit that a record passes before anything of it is recorded.
func unfit(err error) error {
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok || e.Code != schemas.CodeLimitExceeded {
		return err
	}
	refused := *e
	refused.Code = schemas.CodeTooLarge
	return &refused
}

// ended returns the record of an ended turn, or nil.
func (s *Store) ended(turnID string) (*record, error) {
	v, found, err := s.state.Get(turnKey(turnID))
	if err != nil || !found {
		return nil, err
	}
	r, err := decodeRecord(v)
	if err != nil {
		return nil, fmt.Errorf("turn %s: %w", turnID, err)
	}
	return &r, nil
}

// repeat completes the offset of a turn that has ended, and emits nothing.
func (s *Store) repeat(in *Input, hash []byte) error {
	if !bytes.Equal(hash, in.Hash) {
		return in.refusal(conflict())
	}
	return s.state.Add(&statestore.Effect{Offset: in.Origin.Offset, Urgent: true})
}

// begin accepts a new turn: its first fact is recorded, with a cancel that overtook it, and rides with the next commit.
func (s *Store) begin(in *Input) (*Journal, error) {
	if in.Unfit != nil {
		return nil, in.Unfit
	}
	agent, err := s.codec.agentBody(in.Agent)
	if err != nil {
		return nil, err
	}
	a := accepted(in, agent.hash, s.codec.cfg)
	s.begun(a.TurnID, needsOf(a))
	j, err := s.record(in, agent, a)
	if err != nil {
		s.over(a.TurnID)
	}
	return j, err
}

func (s *Store) record(in *Input, agent agentBody, a *fact.Accepted) (*Journal, error) {
	drops := s.state.Drops()
	set, err := s.storeAgent(agent, later(a.At, in.Timestamp))
	if err != nil {
		return nil, err
	}
	j := newJournal(s, a, in.Agent)
	j.take(in)
	j.since, j.config = drops, set
	if err := s.loadHistory(j); err != nil {
		return nil, err
	}
	facts := []fact.Fact{a}
	cancelled, err := s.recallCancel(a)
	if err != nil {
		return nil, err
	}
	if cancelled != nil {
		facts = append(facts, cancelled)
		j.mu.cancelled = true
		j.frames = []fact.Frame{{Fact: a}, {Fact: cancelled}}
	}
	s.state.NewLog(j.log)
	j.first = newEffect()
	if err := j.add(j.first, facts...); err != nil {
		return nil, err
	}
	s.keepAgent(agent.hash, in.Agent)
	return j, nil
}

// keepAgent remembers that the state has a configuration. It comes after the effect that stores it: another turn that finds it
// here then commits no earlier.
func (s *Store) keepAgent(hash []byte, agent *fact.Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.agents[string(hash)] = agent
}

func accepted(in *Input, agentHash []byte, cfg Config) *fact.Accepted {
	ev := in.Event
	a := &fact.Accepted{
		TurnID: ev.TurnID, SessionID: ev.SessionID, Lone: in.Lone, AgentName: in.Agent.Name, AgentHash: agentHash, PayloadHash: in.Hash,
		Origin: in.Origin, At: cfg.Now(), Metadata: ev.Metadata, Narrowed: ev.Tools != nil, Tools: ev.Tools, Scope: ev.Scope,
		OutputSchema: ev.OutputSchema, Trace: in.Trace, TraceState: in.TraceState, Worker: cfg.Process,
		Messages: make([]fact.Message, len(ev.Messages)),
	}
	if ev.Deadline != nil {
		a.Deadline = *ev.Deadline
	}
	for i, m := range ev.Messages {
		a.Messages[i] = fact.Message{Role: fact.Role(m.Role), Text: m.Text, Parts: m.Parts}
		a.OwnHistory = a.OwnHistory || m.Role != string(fact.RoleUser)
	}
	return a
}

// storeAgent returns the mutation that stores a configuration, where the state does not have it.
func (s *Store) storeAgent(a agentBody, at time.Time) ([]statestore.Mutation, error) {
	if known, err := s.agent(a.hash); err != nil || known != nil {
		return nil, err
	}
	return []statestore.Mutation{{Op: statestore.OpSet, Key: agentKey(a.hash), Value: append(stamped(at, len(a.body)), a.body...)}}, nil
}

// CheckAgent refuses an agent whose configuration or turn:start would not fit a record: no turn of it could begin.
func (c *Codec) CheckAgent(agent *fact.Agent) error {
	body, err := c.agentBody(agent)
	if err != nil {
		return err
	}
	if n := 1 + len(body.body); n > c.cfg.RecordBytes {
		return fmt.Errorf("agent %s: its system prompt and tools take %d bytes of a record, which holds %d (LATHE_MAX_RECORD_BYTES)", agent.Name, n, c.cfg.RecordBytes)
	}
	j := &Journal{store: &Store{codec: c}, accepted: &fact.Accepted{AgentName: agent.Name}, agent: agent}
	if err := j.events(&statestore.Effect{}, j.accepted, 0); err != nil {
		return fmt.Errorf("agent %s: its turns cannot begin: %w", agent.Name, err)
	}
	return nil
}

// agent returns a stored configuration, or nil.
func (s *Store) agent(hash []byte) (*fact.Agent, error) {
	s.mu.Lock()
	a := s.mu.agents[string(hash)]
	s.mu.Unlock()
	if a != nil {
		return a, nil
	}
	v, found, err := s.state.Get(agentKey(hash))
	if err != nil || !found {
		return nil, err
	}
	body, err := stampedBody(v)
	if err != nil {
		return nil, fmt.Errorf("read an agent's configuration: %w", err)
	}
	a = &fact.Agent{}
	if err := s.codec.facts.Unmarshal(body, a); err != nil {
		return nil, fmt.Errorf("read an agent's configuration: %w", err)
	}
	s.keepAgent(hash, a)
	return a, nil
}

// resume builds the journal of a turn that is under way, or returns nil when the state has none.
func (s *Store) resume(turnID string) (*Journal, error) {
	if !s.isUnderWay(turnID) {
		return nil, nil //nolint:nilnil // The state has no such journal, which is no error.
	}
	bodies, err := s.state.Log(journalKey(turnID))
	if err != nil || len(bodies) == 0 {
		return nil, err
	}
	frames, err := s.codec.facts.Frames(bytes.Join(bodies, nil))
	if err != nil {
		return nil, fmt.Errorf("read the journal of turn %s: %w", turnID, err)
	}
	a, ok := frames[0].Fact.(*fact.Accepted)
	if !ok {
		return nil, fmt.Errorf("read the journal of turn %s: it does not begin with an accepted turn", turnID)
	}
	agent, err := s.agent(a.AgentHash)
	if err != nil {
		return nil, err
	}
	if agent == nil {
		return nil, fmt.Errorf("read the journal of turn %s: the state has no agent configuration %x", turnID, a.AgentHash)
	}
	j := newJournal(s, a, agent)
	j.frames, j.resumed = frames, true
	for _, f := range frames {
		j.mu.seq = f.Seq + f.Fact.Events()
		if j.keeps(f.Fact) {
			j.mu.transcript.add(append(j.transcriptRoom(len(f.Raw)), f.Raw...))
		}
		if _, ok := f.Fact.(*fact.Cancelled); ok {
			j.mu.cancelled = true
		}
	}
	return j, s.loadHistory(j)
}

// Unfinished returns the turns under way in the state. Those of left go on by themselves, in the order they were accepted: their record
// will not be read again, since it lies below start, or was in a topic that is not the one with the id. An empty id is not compared.
// Those of awaited go on with their record, and are given by its offset.
func (s *Store) Unfinished(start int64, topicID []byte) (left []Unfinished, awaited map[int64]Unfinished, err error) {
	awaited = make(map[int64]Unfinished)
	err = s.state.Scan(journalPrefix, func(key string, value []byte) error {
		if !strings.HasSuffix(key, firstRecord) {
			return nil
		}
		body, err := statestore.Body(value)
		if err != nil {
			return fmt.Errorf("read journal %s: %w", key, err)
		}
		frames, err := s.codec.facts.Frames(body)
		if err != nil {
			return fmt.Errorf("read journal %s: %w", key, err)
		}
		if len(frames) == 0 {
			return fmt.Errorf("read journal %s: it is empty", key)
		}
		a, ok := frames[0].Fact.(*fact.Accepted)
		if !ok {
			return nil
		}
		u := Unfinished{
			TurnID: a.TurnID, SessionID: a.SessionID, PayloadHash: a.PayloadHash, Offset: a.Origin.Offset, Elsewhere: elsewhere(a.Origin.TopicID, topicID), At: a.At,
		}
		if u.Elsewhere || u.Offset < start {
			left = append(left, u)
		} else {
			awaited[u.Offset] = u
		}
		return nil
	})
	slices.SortFunc(left, func(a, b Unfinished) int {
		switch {
		case a.Elsewhere == b.Elsewhere:
			return cmp.Compare(a.Offset, b.Offset)
		case a.Elsewhere: // That topic is the older one.
			return -1
		}
		return 1
	})
	return left, awaited, err
}

// Unfinished is a turn that is under way in the state.
type Unfinished struct {
	TurnID, SessionID string
	PayloadHash       []byte
	// Offset is that of its record. Elsewhere says that it was in a topic of the name that is no more.
	Offset    int64
	Elsewhere bool
	At        time.Time
}
