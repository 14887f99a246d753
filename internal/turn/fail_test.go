package turn

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// A turn that cannot go on is ended from what is durable of it. Started calls are closed by how far they had come here; what another
// process may have begun stays in doubt.
func TestFail_ClosesCallsByHowFarTheyHadCome(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, tool string
		// before is what this process knew of the call; nil when the turn did not run here.
		before       *callState
		status, turn string
	}{
		{"a read that had begun", "look read safe_to_retry", &callState{started: true, begun: true}, schemas.StatusError, schemas.StatusFailed},
		{"a write that had begun", "pay write at_most_once", &callState{started: true, begun: true}, schemas.StatusOutcomeUnknown, schemas.StatusOutcomeUnknown},
		{"a write whose result was lost", "pay write at_most_once", &callState{started: true, begun: true, result: &fact.Result{Status: schemas.StatusOK}}, schemas.StatusOutcomeUnknown, schemas.StatusOutcomeUnknown},
		{"a write that certainly had not begun", "pay write at_most_once", &callState{started: true}, schemas.StatusSkipped, schemas.StatusFailed},
		{"a write that another process may have begun", "pay write at_most_once", &callState{started: true, inDoubt: true}, schemas.StatusIndeterminate, schemas.StatusIndeterminate},
		{"a write of a turn that did not run here", "pay write at_most_once", nil, schemas.StatusIndeterminate, schemas.StatusIndeterminate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &scenario{Agent: agentScript{Tools: []string{tc.tool}}, Turn: turnScript{Messages: []string{"user hi"}}}
				w, l := newWorld(s), newLedger(t)
				tool := toolOf(tc.tool)
				call := fact.Call{CallID: "c", Tool: tool, Input: []byte(`{}`)}
				stored := []fact.Fact{s.accepted(w.begin), &fact.Responded{
					Response: fact.Response{Calls: []fact.Asked{{Name: tool.Name, CallID: "c", Arguments: []byte(`{}`)}}, FinishReason: schemas.FinishToolCall},
					Wave:     []fact.Call{call}, At: time.Now(), Worker: "w1",
				}}
				if err := l.append(stored); err != nil {
					t.Fatal(err)
				}
				known, err := Replay(l.frames(t))
				if err != nil {
					t.Fatal(err)
				}
				var before *Known
				if tc.before != nil {
					before = NewKnown()
					before.calls[call.Ref] = tc.before
					before.calls[fact.Ref{Step: 1}] = &callState{begun: true} // Of a step that is not durable.
				}
				loop := New(Config{Worker: "w1", Now: time.Now, CheckOutput: checkOutput, Logger: slog.New(slog.DiscardHandler)}, w, w)
				err = loop.Fail(&Turn{Accepted: s.accepted(w.begin), Agent: s.agent(), Known: known, Journal: &journal{world: w, ledger: l}, Gate: w},
					before, schemas.CodeLimitExceeded, "it does not fit")
				checkWhole(t, w, l, err)
				frames := l.frames(t)
				if got := frames[2].Fact.(*fact.Finished); got.Status != tc.status || !got.Started {
					t.Errorf("the call is %s, started %t; want %s", got.Status, got.Started, tc.status)
				}
				if end := l.ended(t); end.Status != tc.turn || end.Code != schemas.CodeLimitExceeded || end.Steps != 1 {
					t.Errorf("the turn ended %s, %s after %d steps; want %s", end.Status, end.Code, end.Steps, tc.turn)
				}
			})
		})
	}
}
