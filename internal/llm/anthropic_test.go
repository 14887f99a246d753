package llm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

const anthropicAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5-20250929",
 "content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,
 "usage":{"input_tokens":40,"cache_creation_input_tokens":10,"cache_read_input_tokens":50,"output_tokens":20,
  "output_tokens_details":{"thinking_tokens":7},"service_tier":"standard"}}`

func anthropicMessage(content, stop string) string {
	return `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":` + content + `,"stop_reason":"` + stop +
		`","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
}

const anthropicContent = `[{"type":"thinking","thinking":"hm <hm>","signature":"c2ln"},{"type":"redacted_thinking","data":"eA=="},` +
	`{"type":"text","text":"Let me see.","citations":null},` +
	`{"type":"tool_use","id":"call_A","name":"lookup_order","input":{"order_id":"1"},"caller":{"type":"direct"}},` +
	`{"type":"tool_use","id":"call_B","name":"search","input":{}}]`

const anthropicOpaque = `{"role":"assistant","content":` + anthropicContent + `}`

func TestAnthropic_SendsExactlyThis(t *testing.T) {
	t.Parallel()
	s, base := serve(t, reply(200, anthropicAnswer))
	cfg := anthropicConfig(base)
	cfg.Params = Params{
		Temperature: new(1.0), TopP: new(0.97), Stop: []string{"<END>"}, ReasoningEffort: "low", ParallelToolCalls: new(false),
		MaxOutputTokens: new(int64(50_000)), Thinking: "enabled", ThinkingBudgetTokens: new(int64(2000)),
	}
	if _, err := ask(t, route(t, cfg, nil), fullRequest(anthropicOpaque, ProviderAnthropic)); err != nil {
		t.Fatal(err)
	}
	got := s.requests()[0]
	if got.path != "/v1/messages" {
		t.Errorf("path is %s", got.path)
	}
	if k, v := got.header.Get("X-Api-Key"), got.header.Get("Anthropic-Version"); k != secret || v == "" {
		t.Errorf("key is %q, version %q", k, v)
	}
	golden(t, "anthropic_request.json", got.body)
}

func TestAnthropic_SendsTheLeastItMay(t *testing.T) {
	t.Parallel()
	s, base := serve(t, reply(200, anthropicAnswer))
	_, err := ask(t, route(t, anthropicConfig(base), nil), func(r *fact.Request) {
		// An answer without content cannot be sent back; a schema that is not enforced is told.
		r.Messages = append(r.Messages, fact.Message{Role: fact.RoleAssistant, Provider: ProviderAnthropic}, fact.Message{Role: fact.RoleUser, Text: "And?"})
		r.OutputSchema = []byte(`{"type":"object","properties":{"n":{"type":"integer","minimum":1}}}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "anthropic_minimal.json", s.requests()[0].body)
}

func TestAnthropic_ReadsNothingFromTheEnvironment(t *testing.T) {
	for _, v := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"} {
		t.Setenv(v, "from-the-environment")
	}
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Custom: from-the-environment")
	s, base := serve(t, reply(200, anthropicAnswer))
	cfg := anthropicConfig(base)
	cfg.Key = nil
	if _, err := ask(t, route(t, cfg, nil)); err != nil {
		t.Fatal(err)
	}
	for k, v := range s.requests()[0].header {
		if strings.Contains(strings.Join(v, " "), "from-the-environment") {
			t.Errorf("header %s: %v", k, v)
		}
	}
}

func TestAnthropic_EnforcesOnlyAsManySchemasAsItMay(t *testing.T) {
	t.Parallel()
	plain := `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`
	unions := `{"type":"object","properties":{"a":{"type":["string","null"]},"b":{"anyOf":[{"type":"string"},{"type":"null"}]},"c":{"type":["string","null"]},` +
		`"d":{"type":["string","null"]},"e":{"type":["string","null"]}},"required":["a","b","c","d","e"],"additionalProperties":false}`
	tests := []struct {
		name   string
		schema string
		tools  int
		off    bool
		want   int
	}{
		{"twenty tools", plain, 25, false, 20},
		{"sixteen unions", unions, 25, false, 3},
		{"none where it is switched off", plain, 3, true, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &service{t: t, answers: []http.HandlerFunc{reply(200, anthropicAnswer)}}
			cfg := anthropicConfig("http://local")
			if tc.off {
				cfg.Params.StrictTools = new(false)
			}
			_, err := ask(t, route(t, cfg, transport{s}), func(r *fact.Request) {
				for i := range tc.tools {
					r.Tools = append(r.Tools, fact.ToolSpec{Name: fmt.Sprintf("t%d", i), Input: []byte(tc.schema)})
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(s.requests()[0].body), `"strict":true`); n != tc.want {
				t.Errorf("%d tools are strict, want %d", n, tc.want)
			}
		})
	}
}

func TestAnthropic_ReadsAnAnswer(t *testing.T) {
	t.Parallel()
	_, base := serve(t, reply(200, anthropicAnswer))
	cfg := anthropicConfig(base)
	cfg.Price = &Price{InputMicrosPerMTok: 3_000_000, OutputMicrosPerMTok: 15_000_000, CachedMicrosPerMTok: new(int64(300_000))}
	got, err := ask(t, route(t, cfg, nil))
	if err != nil {
		t.Fatal(err)
	}
	got.Duration = 0
	want := &fact.Response{
		Text: "Hello.", FinishReason: schemas.FinishStop, Provider: "anthropic", Model: "claude-sonnet-4-5-20250929",
		// What came from the cache and what went into it is input, too.
		Usage:      schemas.Usage{InputTokens: 100, OutputTokens: 20, CacheReadTokens: 50, CacheWriteTokens: 10, ReasoningTokens: 7},
		CostMicros: new(int64(50*3 + 15 + 300)),
		Opaque:     []byte(`{"role":"assistant","content":[{"type":"text","text":"Hello."}]}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAnthropic_SendsThinkingAndCallsBackUnchanged(t *testing.T) {
	t.Parallel()
	s, base := serve(t, reply(200, anthropicMessage(anthropicContent, "tool_use")))
	r := route(t, anthropicConfig(base), nil)
	first, err := ask(t, r)
	if err != nil {
		t.Fatal(err)
	}
	wantCalls := []fact.Asked{
		{Name: "lookup_order", CallID: "call_A", Arguments: []byte(`{"order_id":"1"}`)}, {Name: "search", CallID: "call_B", Arguments: []byte(`{}`)},
	}
	if first.Text != "Let me see." || first.FinishReason != schemas.FinishToolCall || !reflect.DeepEqual(first.Calls, wantCalls) {
		t.Errorf("got %q %s %s", first.Text, first.FinishReason, first.Calls)
	}
	results := []*fact.Result{{Status: schemas.StatusOK, Output: []byte(`"one"`)}, {Status: schemas.StatusError, Code: schemas.CodeTimeout}}
	_, err = ask(t, r, func(req *fact.Request) { req.Messages = fact.AppendStep(req.Messages, first, results) })
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(s.requests()[1].body, &body); err != nil {
		t.Fatal(err)
	}
	if len(body.Messages) != 3 {
		t.Fatalf("%d messages, want 3: both results belong into one", len(body.Messages))
	}
	var got, want any
	if json.Unmarshal(body.Messages[1], &got) != nil || json.Unmarshal([]byte(anthropicOpaque), &want) != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("sent back %s\nwant %s", body.Messages[1], anthropicOpaque)
	}
	for _, w := range []string{`"tool_use_id":"call_A"`, `"tool_use_id":"call_B"`, `"is_error":true`} {
		if !strings.Contains(string(body.Messages[2]), w) {
			t.Errorf("%s is not in %s", w, body.Messages[2])
		}
	}
}

func TestAnthropic_MapsHowAnAnswerEnds(t *testing.T) {
	t.Parallel()
	text := `[{"type":"text","text":"Hi"}]`
	call := `[{"type":"tool_use","id":"c","name":"f","input":{}}]`
	tests := []struct {
		name, content, stop string
		want                string
		code                schemas.Code
	}{
		{"end_turn", text, "end_turn", schemas.FinishStop, ""},
		{"stop_sequence", text, "stop_sequence", schemas.FinishStop, ""},
		{"tool_use", call, "tool_use", schemas.FinishToolCall, ""},
		{"calls under end_turn", call, "end_turn", schemas.FinishToolCall, ""},
		{"max_tokens", text, "max_tokens", schemas.FinishLength, ""},
		{"a cut call", call, "max_tokens", schemas.FinishLength, ""},
		{"a full window", text, "model_context_window_exceeded", schemas.FinishLength, ""},
		{"nothing said", `[]`, "end_turn", schemas.FinishStop, ""},
		{"refusal", text, "refusal", "", schemas.CodeModelRefused},
		{"pause_turn", text, "pause_turn", "", schemas.CodeModelInvalidResponse},
		{"something new", text, "compaction", "", schemas.CodeModelInvalidResponse},
		{"nothing", text, "", "", schemas.CodeModelInvalidResponse},
		{"tool_use without a call", text, "tool_use", "", schemas.CodeModelInvalidResponse},
		{"content of another shape", `"payload"`, "end_turn", "", schemas.CodeModelInvalidResponse},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &service{t: t, answers: []http.HandlerFunc{reply(200, anthropicMessage(tc.content, tc.stop))}}
			got, err := ask(t, route(t, anthropicConfig("http://local"), transport{s}))
			if tc.code != "" {
				wantError(t, err, schemas.ClassTerminal, tc.code, "")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.FinishReason != tc.want {
				t.Errorf("got %s, want %s", got.FinishReason, tc.want)
			}
			if (got.Opaque == nil) != (tc.content == `[]`) {
				t.Errorf("opaque is %s", got.Opaque)
			}
		})
	}
}

func TestAnthropic_ClassifiesFailures(t *testing.T) {
	t.Parallel()
	fail := func(kind, message string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"},"request_id":"req_1"}`
	}
	tests := []struct {
		name     string
		status   int
		body     string
		class    schemas.Class
		code     schemas.Code
		contains string
	}{
		{"overloaded", 529, fail("overloaded_error", "Overloaded"), schemas.ClassRetryable, schemas.CodeModelUnavailable, "status 529; given up after 2"},
		{"rate limit", 429, fail("rate_limit_error", "payload"), schemas.ClassRetryable, schemas.CodeModelUnavailable, "status 429"},
		{"a proxy's page", 502, `<html>`, schemas.ClassRetryable, schemas.CodeModelUnavailable, "status 502"},
		{"a wrong key", 401, fail("authentication_error", "invalid x-api-key "+secret), schemas.ClassTerminal, schemas.CodeModelUnavailable, "(authentication_error): it does not know the key"},
		{"a bad request", 400, fail("invalid_request_error", "messages.0: payload"), schemas.ClassTerminal, schemas.CodeModelUnavailable, "does not take this request"},
		{"too long", 400, fail("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), schemas.ClassTerminal, schemas.CodeModelUnavailable, "limits.context_bytes"},
		{"no credit", 400, fail("invalid_request_error", "Your credit balance is too low"), schemas.ClassTerminal, schemas.CodeModelUnavailable, "no credit left"},
		{"no such model", 404, fail("not_found_error", "model: x"), schemas.ClassTerminal, schemas.CodeModelUnavailable, "check model"},
		{"not JSON", 200, `<html>`, schemas.ClassTerminal, schemas.CodeModelInvalidResponse, "base_url"},
		{"null", 200, `null`, schemas.ClassTerminal, schemas.CodeModelInvalidResponse, "no message"},
		{"something else", 200, `{"a":1}`, schemas.ClassTerminal, schemas.CodeModelInvalidResponse, "no content"},
		{"cut", 200, anthropicAnswer[:90], schemas.ClassRetryable, schemas.CodeModelUnavailable, "cut off"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, base := serve(t, reply(tc.status, tc.body, "Retry-After-Ms", "1"))
			cfg := anthropicConfig(base)
			cfg.Attempts = 2
			_, err := ask(t, route(t, cfg, nil))
			wantError(t, err, tc.class, tc.code, tc.contains)
			want := 1
			if tc.class == schemas.ClassRetryable {
				want = 2
			}
			if n := len(s.requests()); n != want {
				t.Errorf("asked %d times, want %d", n, want)
			}
		})
	}
}
