package dedupe

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
)

// remembers reports whether the turn has the history of a session: what was said before it, and what it leaves to those that come after.
func (j *Journal) remembers() bool { return j.agent.History && !j.accepted.Lone }

// loadHistory reads what the session said before, and the number that the turn will have in it.
func (s *Store) loadHistory(j *Journal) error {
	if !j.remembers() {
		return nil
	}
	session := j.accepted.SessionID
	var turns []*bytes.Buffer
	err := s.state.Scan(historyPrefix(session), func(key string, value []byte) error {
		n, err := historyNumber(session, key)
		if err != nil {
			return err
		}
		body, err := stampedBody(value)
		if err != nil {
			return fmt.Errorf("read history %s: %w", key, err)
		}
		if len(turns) == 0 || n >= j.number {
			turns, j.number = append(turns, &bytes.Buffer{}), n+1
			j.past = append(j.past, pastTurn{number: n})
		}
		last := &j.past[len(j.past)-1]
		last.parts, last.bytes = last.parts+1, last.bytes+len(body)
		_, err = turns[len(turns)-1].Write(body)
		return err
	})
	if err != nil || j.accepted.OwnHistory {
		return err
	}
	for _, t := range turns {
		messages, err := s.messages(t.Bytes())
		if err != nil {
			return fmt.Errorf("read the history of session %s: %w", session, err)
		}
		j.history = append(j.history, messages...)
	}
	return nil
}

// messages are the messages of one ended turn, from its stored frames.
func (s *Store) messages(transcript []byte) ([]fact.Message, error) {
	frames, err := s.codec.facts.Frames(transcript)
	if err != nil {
		return nil, err
	}
	var out []fact.Message
	var responses []*fact.Response
	results := make(map[fact.Ref]*fact.Result)
	for _, f := range frames {
		switch f := f.Fact.(type) {
		case *fact.Accepted:
			out = append(out, said(f)...)
		case *fact.Responded:
			responses = append(responses, &f.Response)
		case *fact.Finished:
			results[f.Ref] = &f.Result
		case *fact.Began, *fact.NotBegun, *fact.Cancelled, *fact.Restarted, *fact.Ended:
		}
	}
	for _, r := range responses {
		of := make([]*fact.Result, len(r.Calls))
		for i := range of {
			ref := fact.Ref{Step: r.Step, Position: i}
			if of[i] = results[ref]; of[i] == nil {
				return nil, fmt.Errorf("the call at step %d, position %d has no result", ref.Step, ref.Position)
			}
		}
		out = fact.AppendStep(out, r, of)
	}
	return out, nil
}

// said are the messages of a turn that later turns are to see: all of them, or, when the turn brought a history of its own,
// those that follow it.
func said(a *fact.Accepted) []fact.Message {
	ms := a.Messages
	if !a.OwnHistory {
		return ms
	}
	for i, m := range slices.Backward(ms) {
		if m.Role != fact.RoleUser {
			return ms[i+1:]
		}
	}
	return ms
}

// appendHistory adds the turn's transcript to its session, in parts of whole frames where it would pass the record limit, and
// drops the oldest turns that the session has no room for any more.
func (j *Journal) appendHistory(e *statestore.Effect, at time.Time) {
	if !j.remembers() || j.thrift == ThriftBare {
		return
	}
	limit := j.store.codec.cfg.RecordBytes
	if j.thrift == ThriftSmall {
		limit = min(limit, thriftyPart)
	}
	part := 0
	j.mu.transcript.parts(at, limit, func(value []byte) {
		e.Mutations = append(e.Mutations, statestore.Mutation{Op: statestore.OpSet, Key: historyKey(j.accepted.SessionID, j.number, part), Value: value})
		part++
	})
	j.dropPast(e, j.mu.transcript.size())
}

// pastTurn is an earlier turn of the session as the history has it.
type pastTurn struct {
	number uint32
	parts  int
	bytes  int
}

// dropPast removes the oldest turns until the session keeps its bounds with one more turn of some bytes.
func (j *Journal) dropPast(e *statestore.Effect, more int) {
	cfg := j.store.codec.cfg
	turns, bytes := len(j.past)+1, more
	for _, t := range j.past {
		bytes += t.bytes
	}
	for _, t := range j.past {
		if (cfg.SessionTurns <= 0 || turns <= cfg.SessionTurns) && (cfg.SessionBytes <= 0 || bytes <= cfg.SessionBytes) {
			return
		}
		for part := range t.parts {
			e.Mutations = append(e.Mutations, statestore.Mutation{Op: statestore.OpDelete, Key: historyKey(j.accepted.SessionID, t.number, part)})
		}
		turns, bytes = turns-1, bytes-t.bytes
	}
}
