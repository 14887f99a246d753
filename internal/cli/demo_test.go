package cli

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/schemas"
)

func TestDemo_KeepsEveryPromiseAndItsTableCanFail(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e, err := playDemo(t.Context(), testEnv(t, &out))
	if err != nil {
		t.Fatalf("play the demo: %v\n%s", err, &out)
	}
	if !printPromises(&out, e.promises()) {
		t.Fatalf("a promise was not held:\n%s", &out)
	}
	if strings.Contains(out.String(), "\x1b[") {
		t.Error("piped output holds escape sequences")
	}
	for _, tc := range tampering() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bad := e
			bad.events = slices.Clone(e.events)
			tc.tamper(&bad)
			held := make(map[string]bool)
			for _, p := range bad.promises() {
				held[p.text] = p.held
			}
			if held[tc.breaks] {
				t.Errorf("the table says that %q held", tc.breaks)
			}
			if len(held) != len(e.promises()) {
				t.Errorf("two promises have one text")
			}
		})
	}
}

// tampering is one way of breaking each promise.
func tampering() []struct {
	name, breaks string
	tamper       func(*evidence)
} {
	last := func(e *evidence, kind string) int {
		return slices.IndexFunc(e.events, func(ev event) bool { return ev.env.Type == kind })
	}
	without := func(kind string) func(*evidence) {
		return func(e *evidence) { i := last(e, kind); e.events = slices.Delete(e.events, i, i+1) }
	}
	return []struct {
		name, breaks string
		tamper       func(*evidence)
	}{
		{"an event twice", "every output event exactly once", func(e *evidence) { e.events = append(e.events, e.events[0]) }},
		{"an event missing", "seq of each turn's events without a gap", without(schemas.TypeTurnStep)},
		{"a turn without an end", "no turn lost: each has exactly one turn:end", without(schemas.TypeTurnEnd)},
		{"a result without a start", "a tool:start before its tool:result, none left open", without(schemas.TypeToolStart)},
		{"a refund more than there should be", "no at_most_once tool ran twice", func(e *evidence) { e.ledger.refunds++ }},
		{"the killed call ran again", "a call in doubt is said to be so, never run again", func(e *evidence) {
			e.ledger.began = map[string]int{killedTurn + "/1/0": 2}
		}},
		{"a recorded call ran again", "a recorded result is never computed twice", func(e *evidence) {
			e.ledger.began = map[string]int{"demo-lookup/0/0": 2}
		}},
		{"sessions out of order", "turns of a session one at a time, in order", func(e *evidence) { slices.Reverse(e.events) }},
		{"a turn that ended otherwise", "failures of tools stay inside their turn", func(e *evidence) {
			i := last(e, schemas.TypeTurnEnd)
			turn := *e.events[i].Turn
			turn.Status = "confused"
			e.events[i].OutputRecord = &schemas.OutputRecord{Turn: &turn}
		}},
		{"a dead letter too many", "bad records become dead letters and block nothing", func(e *evidence) {
			e.dead = map[string]int{"undecodable": 2, "conflict": 1}
		}},
		{"a gated tool that was bound", "a tool that waits for approval is refused", func(e *evidence) { e.refusal = nil }},
		{"another refusal", "a tool that waits for approval is refused", func(e *evidence) { e.refusal = errors.New("no") }},
	}
}

func TestDemo_FailsWhenARefundRunsTwice(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	env := testEnv(t, &out, carelessVariable+"=1")
	if code := Main(t.Context(), []string{"demo"}, testProgram(), env); code != exitFailed {
		t.Errorf("exit status %d, want %d:\n%s", code, exitFailed, &out)
	}
	if !strings.Contains(out.String(), "NO") {
		t.Errorf("the table does not say which promise broke:\n%s", &out)
	}
}
