package cli

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

func testEvent(turn string, seq int64, kind string) event {
	out := &schemas.TurnOutput{Envelope: schemas.Envelope{TurnID: turn, Seq: &seq, Type: kind, At: time.UnixMilli(seq)}, Status: schemas.StatusCompleted}
	return event{OutputRecord: &schemas.OutputRecord{Turn: out}, env: &out.Envelope}
}

func ids(events []event) []string {
	var out []string
	for _, ev := range events {
		out = append(out, ev.env.TurnID+strconv.FormatInt(*ev.env.Seq, 10))
	}
	return out
}

func TestMerger_OrdersTheEventsOfATurnBySeq(t *testing.T) {
	t.Parallel()
	m, now := newMerger(), time.Unix(0, 0)
	m.add(testEvent("a", 1, schemas.TypeTurnStep), now)
	m.add(testEvent("b", 0, schemas.TypeTurnStart), now)
	if got := ids(m.ready(now)); !slices.Equal(got, []string{"b0"}) {
		t.Errorf("got %v before the first event of a, want only b's", got)
	}
	m.add(testEvent("a", 0, schemas.TypeTurnStart), now)
	if got := ids(m.ready(now)); !slices.Equal(got, []string{"a0", "a1"}) {
		t.Errorf("got %v, want a's in order", got)
	}
}

func TestMerger_GivesUpWaitingForWhatItNeverSaw(t *testing.T) {
	t.Parallel()
	m, now := newMerger(), time.Unix(0, 0)
	m.add(testEvent("a", 7, schemas.TypeTurnEnd), now)
	if got := m.ready(now); len(got) != 0 {
		t.Errorf("got %v at once", ids(got))
	}
	if got := ids(m.ready(now.Add(mergeWait))); !slices.Equal(got, []string{"a7"}) {
		t.Errorf("got %v after the wait, want the event", got)
	}
	if len(m.turns) != 0 {
		t.Error("a turn that has ended is kept")
	}
}
