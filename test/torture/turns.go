package torture

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/oracle"
)

// item is one record to send, and what becomes of it.
type item struct {
	key       []byte
	value     []byte
	partition int32
	// turn is the turn that must have ended when the record is done; first says that the record begins it.
	turn  string
	first *oracle.Turn
	// bad is set for a record that must become a dead letter.
	bad *oracle.DeadLetter
}

// sequence makes the records of a run, one after another: which they are follows from the seed alone.
type sequence struct {
	rng   *rand.Rand
	n     int
	spare []string // statuses that any turn may end with
	known []item   // turns that were begun
	next  []item   // what follows at once
	later []due    // cancels that come some records later, the earliest first
}

// due is an item that comes when the sequence has got so far.
type due struct {
	item

	n int
}

// stream numbers the random streams of a seed, so that none depends on how far another has come.
func stream(seed, number uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, number)) } //nolint:gosec // to be repeated, not to be secret

const (
	streamTurns uint64 = iota
	streamWorkers
	streamBrokers
)

func newSequence(seed uint64, spare []string) *sequence {
	return &sequence{rng: stream(seed, streamTurns), spare: spare}
}

// sessions: a few have a third of the turns.
const (
	busySessions = 6
	allSessions  = 64
)

func (s *sequence) session() string {
	n := s.rng.IntN(busySessions)
	if s.rng.IntN(3) != 0 {
		n = s.rng.IntN(allSessions)
	}
	return fmt.Sprintf("session-%d", n)
}

// take returns the next record.
func (s *sequence) take() item {
	if len(s.next) > 0 {
		out := s.next[0]
		s.next = s.next[1:]
		return out
	}
	if len(s.later) > 0 && s.later[0].n <= s.n {
		out := s.later[0].item
		s.later = s.later[1:]
		return out
	}
	s.n++
	switch p := s.rng.IntN(100); {
	case p < 7 && len(s.known) > 0:
		again := s.known[len(s.known)-1-s.rng.IntN(min(len(s.known), 400))]
		again.first = nil
		return again
	case p < 11:
		return s.bad()
	}
	return s.turn()
}

// kinds of turns and how they may end, beside what any turn may.
func kinds() []oracle.Turn {
	doubtful := []string{schemas.StatusCompleted, schemas.StatusIndeterminate}
	return []oracle.Turn{
		{ID: "read"},
		{ID: "read"},
		{ID: "save"},
		{ID: "save"},
		{ID: "hello"},
		{ID: "long"},
		{ID: "write", May: doubtful},
		{ID: "both", May: doubtful},
		{ID: "wave", May: doubtful},
		{ID: "late", May: doubtful},
		{ID: "broken", May: []string{schemas.StatusFailed}},
		{ID: "stop", May: []string{
			schemas.StatusCompleted, schemas.StatusCancelled, schemas.StatusIndeterminate, schemas.StatusOutcomeUnknown,
		}},
	}
}

func (s *sequence) turn() item {
	all := kinds()
	kind := all[s.rng.IntN(len(all))]
	id, session := fmt.Sprintf("%s-%d", kind.ID, s.n), s.session()
	named := session
	if s.n%5 == 0 { // It names no session.
		session, named = id, ""
	}
	may := kind.May
	if len(may) == 0 {
		may = []string{schemas.StatusCompleted}
	}
	t := &oracle.Turn{ID: id, Session: session, May: slices.Concat(may, s.spare)}
	it := item{
		key: []byte(session), partition: partitionOf(session), turn: t.ID, first: t,
		value: event(&schemas.TurnEvent{TurnID: id, SessionID: named, Messages: says("this is " + t.ID)}),
	}
	s.known = append(s.known, it)
	if kind.ID == "stop" {
		return s.cancelled(it)
	}
	return it
}

// cancelled has a turn cancelled: by an event that overtakes it, follows at once, or comes some records later.
func (s *sequence) cancelled(it item) item {
	cancel := item{key: it.key, partition: it.partition, value: event(&schemas.TurnEvent{
		Type: schemas.InputCancel, TurnID: it.turn, SessionID: string(it.key), Reason: "enough",
	})}
	switch s.rng.IntN(4) {
	case 0:
		s.next = append(s.next, it)
		return cancel
	case 1:
		s.next = append(s.next, cancel)
	default:
		s.later = append(s.later, due{cancel, s.n + 1 + s.rng.IntN(12)})
		slices.SortStableFunc(s.later, func(a, b due) int { return a.n - b.n })
	}
	return it
}

// bad makes a record that must be refused.
func (s *sequence) bad() item {
	session := s.session()
	it := item{key: []byte(session), partition: partitionOf(session)}
	id := fmt.Sprintf("bad-%d", s.n)
	whole := &schemas.TurnEvent{TurnID: id, SessionID: session, Messages: says("this is " + id)}
	refused := func(what string, may ...string) item {
		it.bad = &oracle.DeadLetter{May: may, What: what, Value: it.value}
		return it
	}
	switch s.rng.IntN(6) {
	case 0:
		it.value = []byte("{no turn " + id)
		return refused("text that is no turn", "undecodable")
	case 1:
		return refused("a tombstone", "tombstone")
	case 2:
		it.value, it.partition = event(whole), (it.partition+1)%turnPartitions
		return refused("a turn on a wrong partition", "partition_mismatch")
	case 3:
		whole.Agent = "nobody"
		it.value = event(whole)
		return refused("a turn for an agent that nobody knows", "unknown_agent")
	case 4:
		it.value, it.key = event(whole), nil
		return refused("a turn without a key", "key_mismatch")
	}
	if len(s.known) == 0 {
		it.value = []byte("no turn")
		return refused("text that is no turn", "undecodable")
	}
	other := s.known[s.rng.IntN(len(s.known))]
	it.key, it.partition = other.key, other.partition
	it.value = event(&schemas.TurnEvent{TurnID: other.turn, SessionID: string(other.key), Messages: says("something else")})
	return refused("another turn under the id "+other.turn, "conflict")
}

func says(text string) []schemas.Message { return []schemas.Message{{Role: "user", Text: text}} }

func event(ev *schemas.TurnEvent) []byte {
	raw, err := json.Marshal(ev)
	if err != nil {
		panic(err) // Nothing in it can be refused.
	}
	return raw
}

// partitionOf is the partition that a key belongs to, as Java producers reckon.
func partitionOf(key string) int32 {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("turns").Partition(&kgo.Record{Key: []byte(key)}, turnPartitions)
	return int32(p) //nolint:gosec // It is below the count.
}
