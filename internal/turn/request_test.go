package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// Random conversations are cut to random sizes: what is left is an end of the history and the newest steps, no call is without
// its result, no result without its call, the turn's own messages and its last step stay, and it fits where it can.
func TestFitContext_NeverSplitsACallFromItsResult(t *testing.T) {
	t.Parallel()
	rnd := newRand(t)
	for range 5000 {
		var history, own []fact.Message
		for range rnd.IntN(4) {
			history = append(history, fact.Message{Role: fact.RoleUser, Text: strings.Repeat("u", rnd.IntN(50))})
			history = append(history, steps(rnd.IntN, "h")...)
		}
		own = append(own, fact.Message{Role: fact.RoleUser, Text: "own"})
		own = append(own, steps(rnd.IntN, "o")...)
		limit := rnd.IntN(1500)
		before := fmt.Sprint(history, own)
		got := fitContext(history, own, limit)
		checkFit(t, history, own, got, limit)
		if fmt.Sprint(history, own) != before {
			t.Errorf("the messages given were changed")
		}
		if t.Failed() {
			t.Fatalf("limit %d:\nhistory %s\nown     %s\ngot     %s", limit, showMessages(history), showMessages(own), showMessages(got))
		}
	}
}

// steps are responses with calls and their results, and perhaps an answer at the end.
func steps(random func(int) int, name string) []fact.Message {
	var out []fact.Message
	for step := range random(4) {
		m := fact.Message{Role: fact.RoleAssistant, Text: strings.Repeat("a", random(100))}
		var results []fact.Message
		for i := range 1 + random(3) {
			id := fmt.Sprintf("%s%d.%d.%d", name, step, i, random(1<<30))
			m.Calls = append(m.Calls, fact.Asked{Name: "t", CallID: id})
			results = append(results, fact.Message{Role: fact.RoleTool, CallID: id, Text: strings.Repeat("r", random(100))})
		}
		out = append(append(out, m), results...)
	}
	if name == "h" {
		out = append(out, fact.Message{Role: fact.RoleAssistant, Text: "answer"})
	}
	return out
}

func checkFit(t *testing.T, history, own, got []fact.Message, limit int) {
	t.Helper()
	var open []string
	for _, m := range got {
		switch m.Role {
		case fact.RoleTool:
			if len(open) == 0 || open[0] != m.CallID {
				t.Errorf("the result of %s has no call before it", m.CallID)
				return
			}
			open = open[1:]
		case fact.RoleSystem, fact.RoleUser, fact.RoleAssistant:
			if len(open) > 0 {
				t.Errorf("the call %s has no result", open[0])
			}
			for _, c := range m.Calls {
				open = append(open, c.CallID)
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("the call %s has no result", open[0])
	}
	if !slices.ContainsFunc(got, func(m fact.Message) bool { return m.Text == "own" }) {
		t.Errorf("the turn's own message is gone")
	}
	last := own[len(own)-1]
	if show := showMessages(got[len(got)-1:]); show != showMessages([]fact.Message{last}) {
		t.Errorf("the last message is %s", show)
	}
	if got[0].Role != fact.RoleUser {
		t.Errorf("the first message is one of role %s", got[0].Role)
	}
	if sizeOf(got) > limit {
		if from, _ := oldestStep(got[slices.IndexFunc(got, func(m fact.Message) bool { return m.Text == "own" }):]); from >= 0 || len(got) > len(own) {
			t.Errorf("%d bytes do not fit %d, although something could be left out", sizeOf(got), limit)
		}
	}
	if total := sizeOf(history) + sizeOf(own); total <= limit && len(got) != len(history)+len(own) {
		t.Errorf("messages were left out, although all %d bytes fit %d", total, limit)
	}
}

// A turn's requests are made of one list that grows. Each has what it would have if it were made anew, also once it no longer fits, and
// none sees what is added for a later one.
func TestMessages_GrowWithoutChangingEarlierRequests(t *testing.T) {
	t.Parallel()
	rnd := newRand(t)
	for round := range 2000 {
		r := &run{
			turn: &Turn{
				Accepted: &fact.Accepted{Messages: []fact.Message{{Role: fact.RoleUser, Text: "own"}}, OwnHistory: round%5 == 0},
				Agent:    &fact.Agent{System: "system", Limits: fact.Limits{ContextBytes: rnd.IntN(2500)}},
			},
			known: NewKnown(),
		}
		for range rnd.IntN(3) {
			r.turn.History = append(r.turn.History, fact.Message{Role: fact.RoleUser, Text: strings.Repeat("u", rnd.IntN(50))})
			r.turn.History = append(r.turn.History, steps(rnd.IntN, "h")...)
		}
		own := slices.Clone(r.turn.Accepted.Messages)
		var requests, copies [][]fact.Message
		for step := range 12 {
			var history []fact.Message
			if !r.turn.Accepted.OwnHistory {
				history = r.turn.History
			}
			got := r.messages(step)
			want := fitContext(history, own, r.turn.Agent.Limits.ContextBytes-len(r.turn.Agent.System))
			if showMessages(got) != showMessages(want) {
				t.Fatalf("step %d:\ngot  %s\nwant %s", step, showMessages(got), showMessages(want))
			}
			requests, copies = append(requests, got), append(copies, slices.Clone(got))
			resp, results := randomStep(rnd.IntN, step)
			r.known.responses = append(r.known.responses, &fact.Responded{Response: *resp})
			for i, res := range results {
				r.known.call(fact.Ref{Step: step, Position: i}).result = res
			}
			own = fact.AppendStep(own, resp, results)
		}
		for i := range requests {
			_ = append(requests[i], fact.Message{Text: "whoever keeps a request adds to it"})
		}
		for i := range requests {
			if showMessages(requests[i]) != showMessages(copies[i]) {
				t.Fatalf("the request of step %d was changed later", i)
			}
		}
	}
}

func randomStep(random func(int) int, step int) (*fact.Response, []*fact.Result) {
	resp := &fact.Response{Step: step, Text: strings.Repeat("a", random(100))}
	var results []*fact.Result
	for i := range random(3) {
		id := fmt.Sprintf("%d.%d", step, i)
		resp.Calls = append(resp.Calls, fact.Asked{Name: "t", CallID: id})
		results = append(results, &fact.Result{Ref: fact.Ref{Step: step, Position: i}, CallID: id, Status: schemas.StatusOK, Output: []byte(strings.Repeat("1", 1+random(80)))})
	}
	return resp, results
}
