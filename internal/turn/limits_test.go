package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// Each limit of a turn: a turn that stays below it or comes to it completes, one that goes beyond ends with a code and the name of
// the limit.
func TestLimits_EndATurnThatGoesBeyondThem(t *testing.T) {
	t.Parallel()
	const limit = 4
	steps := func(n int, call string) []modelScript { // n responses, the last of which is the answer
		var out []modelScript
		for range n - 1 {
			out = append(out, modelScript{Calls: []string{call}})
		}
		return append(out, modelScript{Text: "done"})
	}
	for _, tc := range []struct {
		name string
		// turn takes n of what is limited.
		turn func(n int) *scenario
		code schemas.Code
		says string
	}{
		{
			"steps", func(n int) *scenario { return &scenario{Agent: agentScript{Steps: limit}, Model: steps(n, "look {}")} },
			schemas.CodeLimitExceeded, "the limit steps of 4 is reached",
		},
		{
			"calls of one step", func(n int) *scenario {
				return &scenario{Agent: agentScript{Calls: limit}, Model: []modelScript{{Calls: slices.Repeat([]string{"look {}"}, n)}, {Text: "done"}}}
			},
			schemas.CodeLimitExceeded, "the limit calls of 4 is reached",
		},
		{
			"calls of all steps", func(n int) *scenario {
				return &scenario{Agent: agentScript{Calls: limit}, Model: steps(n+1, "look {}")}
			},
			schemas.CodeLimitExceeded, "the limit calls of 4 is reached",
		},
		{
			"consecutive failures", func(n int) *scenario { // A tool may fail one time less than the limit says.
				return &scenario{Agent: agentScript{Failures: limit + 1}, Model: steps(n+1, "fail {}")}
			},
			schemas.CodeLimitExceeded, "the limit consecutive_failures of fail of 5 is reached",
		},
		{
			"duration", func(n int) *scenario { // An answer that comes at the very end is in time.
				return &scenario{Agent: agentScript{Duration: "4s"}, Model: []modelScript{{Text: "done", Takes: fmt.Sprintf("%ds", n)}}}
			},
			schemas.CodeDeadlineExceeded, "the limit duration of 4s is reached",
		},
		{
			"the turn's own deadline", func(n int) *scenario {
				return &scenario{Turn: turnScript{Deadline: "4s"}, Model: []modelScript{{Text: "done", Takes: fmt.Sprintf("%ds", n)}}}
			},
			schemas.CodeDeadlineExceeded, "the turn's deadline has passed",
		},
	} {
		for n := limit - 1; n <= limit+1; n++ {
			t.Run(fmt.Sprintf("%s, %d of %d", tc.name, n, limit), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := tc.turn(n)
					s.Agent.Tools = []string{"look read safe_to_retry", "fail read safe_to_retry"}
					s.Turn.Messages = []string{"user hi"}
					s.Tools = map[string]toolScript{
						"look": {Output: []byte(`1`)}, "fail": {Status: schemas.StatusError, Code: schemas.CodeToolError, Message: "it fails"},
					}
					w, l := newWorld(s), newLedger(t)
					err := runTurn(t, w, &journal{world: w, ledger: l}, nil)
					checkWhole(t, w, l, err)
					end := l.ended(t)
					switch {
					case n <= limit && end.Status != schemas.StatusCompleted:
						t.Errorf("ended %s, %s: %s", end.Status, end.Code, end.Message)
					case n > limit && (end.Status != schemas.StatusFailed || end.Code != tc.code || !strings.Contains(end.Message, tc.says)):
						t.Errorf("ended %s, %s: %q; want %s and %q", end.Status, end.Code, end.Message, tc.code, tc.says)
					}
				})
			})
		}
	}
}

// What a turn would begin at the very end of its time does not begin: it could not end in time. A worker that takes a turn over a
// nanosecond earlier asks the model.
func TestLimits_BeginNothingWhenTheTimeIsOver(t *testing.T) {
	t.Parallel()
	const limit = 4 * time.Second
	for _, tc := range []struct {
		name     string
		scenario scenario
		says     string
	}{
		{"duration", scenario{Agent: agentScript{Duration: "4s"}}, "the limit duration of 4s is reached"},
		{"the turn's own deadline", scenario{Turn: turnScript{Deadline: "4s"}}, "the turn's deadline has passed"},
		{"a deadline beyond the duration", scenario{Agent: agentScript{Duration: "4s"}, Turn: turnScript{Deadline: "4001ms"}}, "the limit duration of 4s is reached"},
	} {
		for _, late := range []time.Duration{limit - 1, limit, limit + 1} {
			t.Run(fmt.Sprintf("%s, taken over after %s", tc.name, late), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := tc.scenario
					s.Turn.Messages, s.Model = []string{"user hi"}, []modelScript{{Text: "done"}}
					w, l := newWorld(&s), newLedger(t)
					<-time.After(late)
					err := runTurn(t, w, &journal{world: w, ledger: l}, nil)
					checkWhole(t, w, l, err)
					end := l.ended(t)
					switch asked := len(w.asked[0]); {
					case late < limit && (asked != 1 || end.Status != schemas.StatusCompleted):
						t.Errorf("asked %d times, ended %s, %s: %s", asked, end.Status, end.Code, end.Message)
					case late >= limit && (asked != 0 || end.Code != schemas.CodeDeadlineExceeded || end.Message != tc.says):
						t.Errorf("asked %d times, ended %s, %s: %q; want %q", asked, end.Status, end.Code, end.Message, tc.says)
					}
				})
			})
		}
	}
}

// The limit parallel holds calls back and ends nothing: as many as it says run at once, and the next when a place is free.
func TestLimits_HoldBackCallsBeyondParallel(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"look read safe_to_retry", "pay write at_most_once"} {
		for n := 3; n <= 5; n++ {
			t.Run(fmt.Sprintf("%s, %d of 4", tool, n), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					name, _, _ := strings.Cut(tool, " ")
					s := &scenario{
						Agent: agentScript{Parallel: 4, Tools: []string{tool}}, Turn: turnScript{Messages: []string{"user hi"}},
						Model: []modelScript{{Calls: slices.Repeat([]string{name + " {}"}, n)}, {Text: "done"}},
						Tools: map[string]toolScript{name: {Output: []byte(`1`), Takes: "1s"}},
					}
					w, l := newWorld(s), newLedger(t)
					err := runTurn(t, w, &journal{world: w, ledger: l}, nil)
					checkWhole(t, w, l, err)
					if want := min(n, 4); w.mostAtOnce != want || l.ended(t).Status != schemas.StatusCompleted {
						t.Errorf("%d calls ran at once, want %d; ended %s", w.mostAtOnce, want, l.ended(t).Status)
					}
					if took, want := time.Since(w.begin), time.Duration((n+3)/4)*time.Second; took != want {
						t.Errorf("took %s, want %s", took, want)
					}
				})
			})
		}
	}
}
