package llm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

const script = `
version: 1
scenarios:
  - name: refund
    match: {agent: support, user: '(?i)refund (?P<order>\S+)'}
    steps:
      - text: "I look {{order}} up for {{ turn_id }}."
        calls:
          - {name: lookup_order, arguments: {order_id: "{{order}}", deep: [{n: 1, f: 0.5, "null": null}]}}
          - {name: no_such_tool, id: mine, arguments: '{"cut": "{{1}}'}
          - {name: ping}
        usage: {input_tokens: 120, output_tokens: 30, cache_read_tokens: 100, cache_write_tokens: 5, reasoning_tokens: 9}
      - text: "It says {{result.1}}, after {{result.0}}; step {{step}}, {{agent}}, {{session_id}}, you said {{user}}."
        delay: 500ms
  - name: slow
    match: {turn: slow-, session: vip-}
    steps:
      - {text: Done, delay: 2s, pad: 500}
  - name: flaky
    match: {user: flaky}
    steps:
      - error: {status: 429, retry_after: 3s, times: 2}
        text: At last.
      - error: {status: 401}
      - error: {code: model_refused, message: it will not}
      - {text: Half, finish_reason: length}
  - name: loop
    match: {user: loop}
    repeat: true
    steps:
      - calls: [{name: ping}]
      - calls: [{name: pong}]
`

func scripted(t *testing.T) *Router {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return route(t, Config{Name: "main", Provider: ProviderScripted, ScriptPath: path}, nil)
}

func say(text string, step int, results ...string) func(*fact.Request) {
	return func(r *fact.Request) {
		r.Step = step
		r.Messages = []fact.Message{
			{Role: fact.RoleUser, Text: "before"},
			{Role: fact.RoleUser, Parts: []schemas.Part{{Type: "text", Text: text}}},
			{Role: fact.RoleAssistant, Text: "so far"},
		}
		for _, s := range results {
			r.Messages = append(r.Messages, fact.Message{Role: fact.RoleTool, Text: s})
		}
	}
}

func TestScripted_AnswersByScenarioAndStep(t *testing.T) {
	t.Parallel()
	r := scripted(t)
	got, err := ask(t, r, say(`Please REFUND o"7 now`, 0))
	if err != nil {
		t.Fatal(err)
	}
	got.Duration = 0
	want := &fact.Response{
		Text: `I look o"7 up for t-1.`, FinishReason: schemas.FinishToolCall, Provider: "scripted", Model: "",
		Calls: []fact.Asked{
			{Name: "lookup_order", CallID: "call_0_0", Arguments: []byte(`{"deep":[{"f":0.5,"n":1,"null":null}],"order_id":"o\"7"}`)},
			{Name: "no_such_tool", CallID: "mine", Arguments: []byte(`{"cut": "o"7`)},
			{Name: "ping", CallID: "call_0_2", Arguments: []byte(`{}`)},
		},
		Usage: schemas.Usage{InputTokens: 120, OutputTokens: 30, CacheReadTokens: 100, CacheWriteTokens: 5, ReasoningTokens: 9},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got, err = ask(t, r, say("refund 8", 1, "first", "second"))
	if err != nil {
		t.Fatal(err)
	}
	if w := "It says second, after first; step 1, support, s-1, you said refund 8."; got.Text != w || got.FinishReason != schemas.FinishStop {
		t.Errorf("got %q %s, want %q", got.Text, got.FinishReason, w)
	}
	if got.Duration < 500*time.Millisecond {
		t.Errorf("took %s, want 500ms", got.Duration)
	}
}

func TestScripted_DependsOnNothingButTheRequest(t *testing.T) {
	t.Parallel()
	// Asked in any order, by any process, a step has one answer.
	here, there := scripted(t), scripted(t)
	for _, step := range []int{1, 0, 3, 0, 2} {
		a, errA := ask(t, here, say("loop", step))
		b, errB := ask(t, there, say("loop", step))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		want := []string{"ping", "pong"}[step%2]
		if a.Calls[0].Name != want || !reflect.DeepEqual(a.Calls, b.Calls) {
			t.Errorf("step %d: %s and %s, want %s", step, a.Calls, b.Calls, want)
		}
	}
}

func TestScripted_RunningOutIsAnError(t *testing.T) {
	t.Parallel()
	r := scripted(t)
	tests := []struct {
		name, contains string
		change         func(*fact.Request)
	}{
		{"no such step", "script.yaml ran out: scenario refund has 2 steps, turn t-1 is at step 2", say("refund 8", 2)},
		{"no scenario", "script.yaml has no scenario for turn t-1 (step 0)", say("hello", 0)},
		{"another agent", "no scenario", func(q *fact.Request) { say("refund 8", 0)(q); q.Agent = "other" }},
		{"another session", "no scenario", func(q *fact.Request) { say("", 0)(q); q.TurnID = "slow-1" }},
		{"no such result", "script script.yaml, scenario refund, turn t-1, step 1: there is no result.1", say("refund 8", 1, "one")},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := ask(t, r, tc.change)
			wantError(t, err, schemas.ClassTerminal, schemas.CodeModelInvalidResponse, tc.contains)
		})
	}
}

func TestScripted_WaitsAndStopsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := scripted(t)
		slow := func(q *fact.Request) { q.TurnID, q.Session = "slow-1", "vip-1" }
		got, err := ask(t, r, slow)
		if err != nil {
			t.Fatal(err)
		}
		if got.Duration != 2*time.Second || len(got.Text) != 500 || !strings.HasPrefix(got.Text, "Done") {
			t.Errorf("%s, %d bytes: %q", got.Duration, len(got.Text), got.Text)
		}
		cause := errors.New("drained")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		spec, _ := r.Spec("main")
		_, err = r.Respond(ctx, &fact.Request{Spec: spec, TurnID: "slow-1", Session: "vip-1"})
		if err != cause { //nolint:errorlint // unwrapped is the promise
			t.Errorf("got %v, want the cause itself", err)
		}
	})
}

func TestScripted_FailsAsAServerWould(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := scripted(t)
		got, err := ask(t, r, say("flaky", 0))
		if err != nil {
			t.Fatal(err)
		}
		if got.Text != "At last." || got.Duration != 6*time.Second {
			t.Errorf("got %q after %s, want two waits of 3s", got.Text, got.Duration)
		}
		_, err = ask(t, r, say("flaky", 1))
		wantError(t, err, schemas.ClassTerminal, schemas.CodeModelUnavailable, "does not know the key")
		_, err = ask(t, r, say("flaky", 2))
		wantError(t, err, schemas.ClassTerminal, schemas.CodeModelRefused, "it will not")
		got, err = ask(t, r, say("flaky", 3))
		if err != nil || got.FinishReason != schemas.FinishLength {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestParseScript_ListsWhatIsWrong(t *testing.T) {
	t.Parallel()
	one := func(step string) string {
		return "version: 1\nscenarios: [{name: a, match: {user: '(x)'}, steps: [" + step + "]}]"
	}
	tests := []struct {
		name, yaml string
		want       []string
	}{
		{"empty", ``, []string{"it is empty"}},
		{"no version", `scenarios: []`, []string{"version is 0, want 1"}},
		{"no scenarios", `version: 1`, []string{"has no scenarios"}},
		{"an unknown key", "version: 1\nscenarios:\n  - named: x\n", []string{"named", "3"}},
		{"a bad duration", one(`{delay: soon}`), []string{`"soon"`}},
		{"a bad pattern", `{version: 1, scenarios: [{name: a, match: {user: '('}, steps: [{text: x}]}]}`, []string{"scenario a: match.user"}},
		{"no steps", `{version: 1, scenarios: [{name: b}]}`, []string{"scenario b: has no steps"}},
		{"several", one(`{text: "{{nope}}", calls: [{arguments: {}}, {name: f, arguments: "{{2}}"}], finish_reason: tired}, {error: {}}, {error: {status: 200, times: -1}}, {text: "{{user"}, {text: "{{result.x}}"}`), []string{
			"scenario a: step 0: finish_reason", "{{nope}} is neither", "calls.0: name is missing", "calls.1: arguments: {{2}}",
			"step 1: error: needs a status", "step 2: error: the status 200", "step 3: text: a {{ has no }}", "step 4: text: {{result.x}}",
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseScript("s.yaml", []byte(tc.yaml))
			if err == nil {
				t.Fatal("no fault found")
			}
			for _, w := range append(tc.want, "script s.yaml") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in\n%v", w, err)
				}
			}
		})
	}
}

func TestNewScripted_FillsInWhatIsMissing(t *testing.T) {
	t.Parallel()
	shared := &fact.Response{Text: "x", Calls: []fact.Asked{{Name: "f"}}}
	s := NewScripted(func(r *fact.Request) (*fact.Response, error) {
		switch r.Step {
		case 0:
			return shared, nil
		case 1:
			return nil, errors.New("broken")
		}
		return nil, nil //nolint:nilnil // a function that has nothing to say
	})
	r := route(t, Config{Name: "main", Provider: ProviderScripted, Scripted: s.After(time.Microsecond)}, nil)
	for _, respond := range []func(context.Context, *fact.Request) (*fact.Response, error){s.Respond, r.Respond} {
		spec, _ := r.Spec("main")
		got, err := respond(t.Context(), &fact.Request{Spec: spec})
		if err != nil || got.FinishReason != schemas.FinishToolCall || got.Provider != ProviderScripted {
			t.Errorf("got %+v, %v", got, err)
		}
		if got == shared || shared.FinishReason != "" {
			t.Error("the function's own response was changed")
		}
		_, err = respond(t.Context(), &fact.Request{Spec: spec, Step: 1})
		wantError(t, err, schemas.ClassTerminal, schemas.CodeModelUnavailable, "could not be made")
		_, err = respond(t.Context(), &fact.Request{Spec: spec, Step: 2})
		wantError(t, err, schemas.ClassTerminal, schemas.CodeModelInvalidResponse, "no answer")
	}
}

// A benchmark of the whole worker asks for 35,000 responses a second on two cores; this must not be what it measures.
func BenchmarkScripted(b *testing.B) {
	doc := Script{Version: 1, Scenarios: []Scenario{
		{Name: "other", Match: Match{User: "refund"}, Steps: []Reply{{Text: "no"}}},
		{Name: "bench", Match: Match{Turn: "bench-"}, Steps: []Reply{
			{Pad: 500, Calls: []ScriptedCall{{Name: "read", Arguments: map[string]any{"n": 1}}}}, {Pad: 500},
		}},
	}}
	s, err := doc.Compile("bench")
	if err != nil {
		b.Fatal(err)
	}
	r, err := New([]Config{{Name: "main", Provider: ProviderScripted, Scripted: s, Timeout: 2 * time.Minute, Concurrency: 1024}}, Deps{})
	if err != nil {
		b.Fatal(err)
	}
	spec, _ := r.Spec("main")
	req := &fact.Request{Spec: spec, TurnID: "bench-1", Messages: []fact.Message{{Role: fact.RoleUser, Text: strings.Repeat("hello ", 50)}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Respond(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleNewScripted() {
	model := NewScripted(func(req *fact.Request) (*fact.Response, error) {
		return &fact.Response{Text: fmt.Sprintf("This is step %d.", req.Step)}, nil
	})
	resp, err := model.Respond(background(), &fact.Request{Step: 2})
	fmt.Println(resp.Text, resp.FinishReason, err)
	// Output: This is step 2. stop <nil>
}
