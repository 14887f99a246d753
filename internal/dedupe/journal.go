package dedupe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// Journal records the facts of one turn that is running here. It is safe for concurrent use.
type Journal struct {
	store    *Store
	accepted *fact.Accepted
	agent    *fact.Agent
	history  []fact.Message
	number   uint32 // of the turn in its session's history
	frames   []fact.Frame
	resumed  bool
	origin   fact.Origin
	// stamp is the latest time that is known of the turn before its end; what expires counts from there at least.
	stamp time.Time
	past  []pastTurn
	// key is the Kafka key of the turn's events, log the state key of its journal, ended that of its record.
	key        []byte
	log, ended string
	// thrift is how much the journal does without, after the broker has refused more.
	thrift Thrift
	// first is the effect that accepts the turn; nil when that was committed before.
	first *statestore.Effect
	// since is the number of drops before the state was read for it.
	since uint64
	// config stores the agent's configuration, where the state does not have it.
	config []statestore.Mutation
	run    any

	mu struct {
		sync.Mutex
		seq       int64
		ended     *fact.Ended
		cancelled bool
		// cancel is the cancel that was recorded here, and the offset of its event.
		cancel       *fact.Cancelled
		cancelOffset int64
		onCancel     func()
		// dropped says that what was recorded here and not committed is gone, and redone that the turn begins again.
		dropped, redone bool
		onDrop          func()
		transcript      transcript
		trace           []statestore.Header
		memory          memory
		// eventRoom gives the memory of an event's value.
		eventRoom func(n int) []byte
	}
}

func newJournal(s *Store, a *fact.Accepted, agent *fact.Agent) *Journal {
	j := &Journal{store: s, accepted: a, agent: agent, stamp: a.At}
	j.log, j.ended = turnKeys(a.TurnID)
	s.codec.sizes.expect(&j.mu.memory)
	j.key = append(j.mu.memory.small.take(len(a.SessionID)), a.SessionID...)
	j.mu.eventRoom = j.mu.memory.events.take
	j.SetTrace(a.Trace, a.TraceState)
	return j
}

// Accepted is the turn's first fact.
func (j *Journal) Accepted() *fact.Accepted { return j.accepted }

// Agent is the configuration that the turn runs under: the one recorded when it was accepted.
func (j *Journal) Agent() *fact.Agent { return j.agent }

// History is what the session said before; empty for an agent without history.
func (j *Journal) History() []fact.Message { return j.history }

// Frames are the facts recorded before this process took the turn; empty for a new one, save a cancel that came first.
func (j *Journal) Frames() []fact.Frame { return j.frames }

// Resumed reports whether the turn was under way already.
func (j *Journal) Resumed() bool { return j.resumed }

// End is how the turn ended, nil while it has not.
func (j *Journal) End() *fact.Ended {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.ended
}

// SetTrace sets the trace context that the turn's events carry from now on.
func (j *Journal) SetTrace(parent, state string) {
	if parent == "" {
		return
	}
	hs := []statestore.Header{{Key: "traceparent", Value: []byte(parent)}}
	if state != "" {
		hs = append(hs, statestore.Header{Key: "tracestate", Value: []byte(state)})
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.trace = hs
}

// OnCancel sets what is called when a cancel event for the turn comes, at once when one came already. It must not block.
func (j *Journal) OnCancel(f func()) {
	j.mu.Lock()
	j.mu.onCancel = f
	now := j.mu.cancelled
	j.mu.Unlock()
	if now {
		f()
	}
}

// OnDrop sets what is called when what was recorded here is dropped, at once when it was already. It must not block.
func (j *Journal) OnDrop(f func()) {
	j.mu.Lock()
	j.mu.onDrop = f
	now := j.mu.dropped
	j.mu.Unlock()
	if now {
		f()
	}
}

// Run is what the turn was taken with.
func (j *Journal) Run() any { return j.run }

// LaneKey is the session. With it a Journal is the owner of its effects.
func (j *Journal) LaneKey() string { return j.accepted.SessionID }

// Thrift is how much the journal does without.
func (j *Journal) Thrift() Thrift { return j.thrift }

// Close ends the turn's use here. A turn that has not ended can be accepted again.
func (j *Journal) Close() {
	id := j.accepted.TurnID
	e := j.store.enter(id)
	defer j.store.leave(id, e)
	if e.journal == j {
		e.journal = nil
	}
}

// Add records facts as one effect, which rides with the next commit.
func (j *Journal) Add(facts ...fact.Fact) error {
	return j.add(newEffect(), facts...)
}

// newEffect makes an effect that completes no input, with room for what most facts become: one mutation and one event.
func newEffect() *statestore.Effect {
	e := &struct {
		statestore.Effect

		mutations [1]statestore.Mutation
		outputs   [1]statestore.Output
	}{}
	e.Mutations, e.Outputs, e.Offset = e.mutations[:0], e.outputs[:0], statestore.NoOffset
	return &e.Effect
}

// AddThen records facts as one effect, which somebody waits for. Unless it returns an error, settled is called once: with nil when
// the facts are committed, or with what says that the partition is gone. It must return at once and not call the journal.
func (j *Journal) AddThen(settled func(error), facts ...fact.Fact) error {
	e := newEffect()
	e.Urgent, e.Settled = true, settled
	return j.add(e, facts...)
}

// Commit records facts as one effect and returns when it is committed. It returns the cause of ctx when that ends first; the
// facts are recorded all the same.
func (j *Journal) Commit(ctx context.Context, facts ...fact.Fact) error {
	done := make(chan error, 1)
	if err := j.AddThen(func(err error) { done <- err }, facts...); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add encodes the facts and queues the effect. The lock is held over both, so that seq and the order of effects agree.
func (j *Journal) add(e *statestore.Effect, facts ...fact.Fact) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.addLocked(e, facts...)
}

func (j *Journal) addLocked(e *statestore.Effect, facts ...fact.Fact) error {
	if j.mu.dropped {
		return fmt.Errorf("record a fact of turn %s: %w", j.accepted.TurnID, statestore.ErrDropped)
	}
	e.Owner = j
	if j.mu.ended != nil {
		return fmt.Errorf("record a fact of turn %s: it has ended", j.accepted.TurnID)
	}
	seq, kept := j.mu.seq, len(j.mu.transcript.ends)
	for _, f := range facts {
		if err := j.record(e, f, seq); err != nil {
			j.mu.transcript.cut(kept)
			return err
		}
		seq += f.Events()
	}
	if err := j.queue(e); err != nil {
		j.mu.transcript.cut(kept)
		return err
	}
	j.mu.seq = seq
	for _, f := range facts {
		if ended, ok := f.(*fact.Ended); ok {
			j.mu.ended = ended
			j.store.over(j.accepted.TurnID)
			j.store.codec.sizes.learn(&j.mu.memory, j.mu.transcript.size())
		}
	}
	return nil
}

// queue queues an effect. The first comes of what was read of the session. Before it goes the agent's configuration, in an effect
// that is nobody's: other turns use it as well, so it must not be dropped with the turn that brought it.
func (j *Journal) queue(e *statestore.Effect) error {
	if e != j.first {
		return j.store.state.Add(e)
	}
	if len(j.config) > 0 {
		if err := j.store.state.Add(&statestore.Effect{Mutations: j.config, Offset: statestore.NoOffset}); err != nil {
			return err
		}
	}
	return j.store.state.AddSince(e, j.since)
}

// record adds one fact to an effect: its frame to the journal, or what is left of an ended turn, and its events.
func (j *Journal) record(e *statestore.Effect, f fact.Fact, seq int64) error {
	if err := j.events(e, f, seq); err != nil {
		return err
	}
	if ended, ok := f.(*fact.Ended); ok {
		return j.endOf(e, ended)
	}
	if late := j.late(e, f, seq); late != nil {
		e.Mutations = append(e.Mutations, statestore.Mutation{Op: statestore.OpAppend, Key: j.log, Late: late})
		return nil
	}
	frame, err := j.frame(fact.Frame{Seq: seq, Fact: f})
	if err != nil {
		return err
	}
	if len(frame)+stampSize > j.store.codec.cfg.RecordBytes { // The session's history takes it under a stamp.
		return tooLarge("a fact of the turn", len(frame), j.store.codec.cfg.RecordBytes)
	}
	e.Mutations = append(e.Mutations, statestore.Mutation{Op: statestore.OpAppend, Key: j.log, Value: frame})
	return nil
}

// frame encodes a frame, one that belongs to the conversation in the transcript.
func (j *Journal) frame(f fact.Frame) ([]byte, error) {
	facts := j.store.codec.facts
	if !j.keeps(f.Fact) {
		return facts.Frame(f, j.mu.memory.small.take)
	}
	b, err := facts.Frame(f, j.transcriptRoom)
	if err != nil {
		return nil, err
	}
	return j.mu.transcript.add(b), nil
}

func (j *Journal) transcriptRoom(n int) []byte {
	return j.mu.transcript.room(n, int(j.store.codec.sizes.transcript.Load()))
}

// keeps reports whether the session's history is to have a fact.
func (j *Journal) keeps(f fact.Fact) bool {
	if !j.remembers() {
		return false
	}
	switch f.(type) {
	case *fact.Accepted, *fact.Responded, *fact.Finished:
		return true
	case *fact.Began, *fact.NotBegun, *fact.Cancelled, *fact.Restarted, *fact.Ended:
	}
	return false
}

// endOf turns the end of a turn into mutations: the journal goes, the turn record and the session's history stay, and the
// input offset is done.
func (j *Journal) endOf(e *statestore.Effect, ended *fact.Ended) error {
	at := later(j.stamp, ended.At)
	rec, err := record{hash: j.accepted.PayloadHash, status: ended.Status, at: at}.append(j.mu.memory.small.take(recordSize))
	if err != nil {
		return err
	}
	e.Mutations = append(slices.Grow(e.Mutations, 3), // The third is the history.
		statestore.Mutation{Op: statestore.OpDrop, Key: j.log},
		statestore.Mutation{Op: statestore.OpSet, Key: j.ended, Value: rec},
	)
	if key := j.store.overtaken(j.accepted.TurnID, j.accepted.SessionID); key != "" {
		e.Mutations = append(e.Mutations, statestore.Mutation{Op: statestore.OpDelete, Key: key})
	}
	j.appendHistory(e, at)
	e.Offset, e.Urgent = j.origin.Offset, true
	return nil
}

func tooLarge(what string, size, limit int) *schemas.Error {
	return schemas.Errorf(schemas.CodeLimitExceeded, "%s has %d bytes, more than the record limit of %d", what, size, limit)
}
