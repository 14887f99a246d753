package turn

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// held is a Suspect that notes in the world's log that it was asked.
type held struct {
	world *world
	err   error
}

func (h held) MayStart(_ context.Context, last bool) error {
	if last {
		h.world.note(nil, "the last start")
	}
	return h.err
}

// dangerous is a turn with a step in which every kind of call was started.
func dangerous() *scenario {
	return &scenario{
		Agent: agentScript{Tools: []string{"lookup read safe_to_retry", "save write safe_to_retry", "charge write at_most_once"}},
		Turn:  turnScript{Messages: []string{"user hello"}},
		Model: []modelScript{{Text: "working", Calls: []string{"save {}"}}, {Text: "done"}},
		Tools: map[string]toolScript{"save": {Output: []byte(`1`)}},
	}
}

// asked is a recorded response that started a call of each of the tools.
func asked(tools ...string) *fact.Responded {
	f := &fact.Responded{Response: fact.Response{Text: "working", FinishReason: schemas.FinishToolCall}, Worker: "w0"}
	for i, name := range tools {
		tool := toolOf(map[string]string{
			"lookup": "lookup read safe_to_retry", "save": "save write safe_to_retry", "charge": "charge write at_most_once",
		}[name])
		f.Calls = append(f.Calls, fact.Asked{Name: name, CallID: name, Arguments: []byte("{}")})
		f.Wave = append(f.Wave, fact.Call{Ref: fact.Ref{Position: i}, CallID: name, Tool: tool, Input: []byte("{}")})
	}
	return f
}

// A turn that its workers may have died of is started three times without progress, each time counted before anything of it
// runs, and not a fourth time.
func TestRun_CountsTheStartsOfASuspectTurn(t *testing.T) {
	t.Parallel()
	restarted := func(n int) *fact.Restarted { return &fact.Restarted{Start: n, Worker: "w0"} }
	ran := &fact.Finished{Result: fact.Result{Tool: toolOf("save write safe_to_retry"), Status: schemas.StatusOK, Started: true, Attempts: 1}}
	inDoubt := &fact.Finished{Result: fact.Result{Tool: toolOf("charge write at_most_once"), Status: schemas.StatusIndeterminate, Started: true}}
	closed := &fact.Finished{Result: fact.Result{Tool: toolOf("save write safe_to_retry"), Status: schemas.StatusSkipped, Started: true}}
	tests := []struct {
		name     string
		recorded []fact.Fact
		unasked  bool // The turn is no suspect.
		// want are the first lines of the log, the last one how it ended.
		want []string
		end  string
	}{
		{
			name: "nothing is known of it, but it may have run",
			want: []string{"commit: restarted 2", "ask 0", "commit: responded 0"}, end: "completed",
		},
		{
			name: "it was accepted, so it has run", recorded: []fact.Fact{&fact.Accepted{}},
			want: []string{"commit: restarted 2", "ask 0"}, end: "completed",
		},
		{
			name: "the last start waits until it may be made", recorded: []fact.Fact{&fact.Accepted{}, restarted(2)},
			want: []string{"the last start", "commit: restarted 3", "ask 0"}, end: "completed",
		},
		{
			name: "a fourth start is not made", recorded: []fact.Fact{&fact.Accepted{}, restarted(2), restarted(3)},
			want: []string{"add: ended failed crash_loop"}, end: "failed",
		},
		{
			name: "a response is progress", recorded: []fact.Fact{&fact.Accepted{}, restarted(2), restarted(3), asked("save")},
			want: []string{"commit: restarted 2", "run 0/0 save"}, end: "completed",
		},
		{
			name: "the result of a call is progress", recorded: []fact.Fact{&fact.Accepted{}, asked("save"), restarted(2), restarted(3), ran},
			want: []string{"commit: restarted 2", "ask 1"}, end: "completed",
		},
		{
			name: "a call closed without running is none", recorded: []fact.Fact{&fact.Accepted{}, asked("save"), restarted(2), restarted(3), closed},
			want: []string{"add: ended failed crash_loop"}, end: "failed",
		},
		{
			name: "a write in doubt says the more dangerous thing", recorded: []fact.Fact{&fact.Accepted{}, asked("save"), restarted(2), restarted(3)},
			want: []string{"add: finished 0/0 save outcome_unknown crash_loop"}, end: "outcome_unknown",
		},
		{
			name: "so does a call that may run only once", recorded: []fact.Fact{&fact.Accepted{}, asked("charge"), restarted(2), restarted(3)},
			want: []string{"add: finished 0/0 charge indeterminate indeterminate"}, end: "indeterminate",
		},
		{
			name:     "of two calls in doubt the one that a worker died of names the turn",
			recorded: []fact.Fact{&fact.Accepted{}, asked("save", "charge"), restarted(2), restarted(3)},
			want:     []string{"add: finished 0/0 save outcome_unknown crash_loop"}, end: "indeterminate",
		},
		{
			name:     "so does one whose result is recorded",
			recorded: []fact.Fact{&fact.Accepted{}, asked("charge", "save"), inDoubt, restarted(2), restarted(3)},
			want:     []string{"add: finished 0/1 save outcome_unknown crash_loop"}, end: "indeterminate",
		},
		{
			name: "a call that only reads hides nothing", recorded: []fact.Fact{&fact.Accepted{}, asked("lookup"), restarted(2), restarted(3)},
			want: []string{"add: finished 0/0 lookup error crash_loop"}, end: "failed",
		},
		{
			name: "a cancel comes before the count", recorded: []fact.Fact{&fact.Accepted{}, restarted(3), &fact.Cancelled{}},
			want: []string{"add: ended cancelled"}, end: "cancelled",
		},
		{
			name: "after a clean hand-over nothing is counted", recorded: []fact.Fact{&fact.Accepted{}, restarted(3)}, unasked: true,
			want: []string{"ask 0"}, end: "completed",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(dangerous())
				if !tc.unasked {
					w.suspect = held{world: w}
				}
				l := newLedger(t)
				for _, f := range tc.recorded {
					if err := l.append([]fact.Fact{f}); err != nil {
						t.Fatal(err)
					}
				}
				if err := runTurn(t, w, &journal{world: w, ledger: l, latency: 5 * time.Millisecond}, l.frames(t)); err != nil {
					t.Fatalf("Run gives %v", err)
				}
				wantFirst(t, w, tc.want)
				if end := l.ended(t); end.Status != tc.end {
					t.Errorf("the turn ended %s (%s: %s), want %s", end.Status, end.Code, end.Message, tc.end)
				}
			})
		})
	}
}

// wantFirst compares the beginnings of the first lines of the log.
func wantFirst(t *testing.T, w *world, want []string) {
	t.Helper()
	var got []string
	for _, l := range w.log {
		got = append(got, l.text)
	}
	for i, line := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], line) {
			t.Fatalf("line %d of the log is not %q:\n%s", i, line, strings.Join(got, "\n"))
		}
	}
}

func TestRun_LeavesASuspectTurnAloneThatIsStoppedBeforeItsLastStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(dangerous())
		w.suspect = held{world: w, err: errDraining}
		l := newLedger(t)
		if err := l.append([]fact.Fact{&fact.Accepted{}, &fact.Restarted{Start: 2}}); err != nil {
			t.Fatal(err)
		}
		err := runTurn(t, w, &journal{world: w, ledger: l, latency: time.Millisecond}, l.frames(t))
		if !errors.Is(err, errDraining) || len(l.effects) != 1 {
			t.Errorf("Run gives %v and recorded %d effects, want what stopped it and nothing", err, len(l.effects)-1)
		}
	})
}

// A worker dies of a turn for ever: at whatever write, the turn is started three times at most once it gets no further, and its
// end is recorded by the next worker.
func TestRun_EndsWhateverKillsItsWorkerEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(dangerous())
		l := newLedger(t)
		if err := l.append([]fact.Fact{&fact.Accepted{}}); err != nil {
			t.Fatal(err)
		}
		kills := 0
		for range 10 {
			j := &journal{world: w, ledger: l, latency: time.Millisecond}
			w.onRun = func(*fact.Call) error {
				kills++
				j.mu.Lock()
				j.dead = true
				j.mu.Unlock()
				return errGone
			}
			err := runTurn(t, w, j, l.frames(t))
			w.suspect = held{world: w}
			if err == nil {
				break
			}
		}
		if kills != mostStarts {
			t.Errorf("the call ran %d times, want %d", kills, mostStarts)
		}
		if end := l.ended(t); end == nil || end.Code != schemas.CodeCrashLoop || end.Status != schemas.StatusOutcomeUnknown {
			t.Errorf("the turn ended %+v", end)
		}
	})
}
