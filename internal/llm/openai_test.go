package llm

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

const openAIAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-5-mini-2025-08-07",
 "choices":[{"index":0,"message":{"role":"assistant","content":"Hello.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],
 "usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,
  "prompt_tokens_details":{"cached_tokens":60,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":12}}}`

func openAIChoice(message, finish string) string {
	return `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":` + message +
		`,"finish_reason":` + strconv.Quote(finish) + `}]}`
}

// strictTool is a schema whose keys are in an order of their own, which must survive.
const strictTool = `{"type":"object","properties":{"order_id":{"type":"string","description":"as <shown>"},"amount":{"type":["number","null"]}},"required":["order_id","amount"],"additionalProperties":false}`

const looseTool = `{"type":"object","properties":{"q":{"type":"string"}}}`

// conversation has every kind of message: parts, an own answer with two calls, one made by another provider, results.
func conversation(opaque, provider string) []fact.Message {
	return []fact.Message{
		{Role: fact.RoleSystem, Text: "Be brief."},
		{Role: fact.RoleUser, Parts: []schemas.Part{
			{Type: "text", Text: "Where is it?"},
			{Type: "json", Value: json.RawMessage(`{"b":1,"a":[2]}`)},
			{Type: "image", URL: "https://example.com/a.png"},
			{Type: "image", Data: "aGk=", MediaType: "image/png"},
		}},
		{
			Role: fact.RoleAssistant, Opaque: []byte(opaque), Provider: provider,
			Calls: []fact.Asked{
				{Name: "lookup_order", CallID: "call_A", Arguments: []byte(`{"order_id":"1"}`)},
				{Name: "search", CallID: "call_B", Arguments: []byte(`{"q":"<x>"}`)},
			},
		},
		{Role: fact.RoleTool, CallID: "call_A", Tool: "lookup_order", Text: `{"status":"sent"}`},
		{Role: fact.RoleTool, CallID: "call_B", Tool: "search", Text: `{"error":{"code":"timeout","message":"m"}}`, Failed: true},
		{
			Role: fact.RoleAssistant, Text: "One more.", Provider: "elsewhere", Opaque: []byte(`"not for you"`),
			Calls: []fact.Asked{
				{Name: "search", CallID: "an id/that no server takes", Arguments: []byte(`{"q":"y"}`)},
				{Name: "search", CallID: "cut", Arguments: []byte(`{"q":"y`)},
			},
		},
		{Role: fact.RoleTool, CallID: "an id/that no server takes", Tool: "search", Text: "found"},
		{Role: fact.RoleTool, CallID: "cut", Tool: "search", Text: "", Failed: true},
		{Role: fact.RoleAssistant, Text: "It was sent."},
		{Role: fact.RoleUser, Text: "Thanks. When & how?"},
	}
}

func fullRequest(opaque, provider string) func(*fact.Request) {
	return func(r *fact.Request) {
		r.System = "You answer questions about orders."
		r.Messages = conversation(opaque, provider)
		r.Tools = []fact.ToolSpec{
			{Name: "lookup_order", Description: "Looks an order up.", Input: []byte(strictTool)},
			{Name: "search", Description: "Searches.", Input: []byte(looseTool)},
		}
		r.OutputSchema = []byte(`{"type":"object","properties":{"when":{"type":"string"}},"required":["when"],"additionalProperties":false}`)
	}
}

const openAIOpaque = `{"role":"assistant","content":null,"refusal":null,"annotations":[],"reasoning_content":"hm <hm>","tool_calls":[{"id":"call_A","type":"function","function":{"name":"lookup_order","arguments":"{\"order_id\":\"1\"}"},"extra_content":{"signature":"s=="}},{"id":"call_B","type":"function","function":{"name":"search","arguments":"{\"q\":\"<x>\"}"}}]}`

func TestOpenAI_SendsExactlyThis(t *testing.T) {
	t.Parallel()
	s, base := serve(t, reply(200, openAIAnswer))
	cfg := openAIConfig(base + "/v1")
	cfg.Params = Params{Temperature: new(0.2), TopP: new(0.9), MaxOutputTokens: new(int64(2048)), Seed: new(int64(7)), Stop: []string{"<END>"}, ReasoningEffort: "low", ParallelToolCalls: new(true)}
	if _, err := ask(t, route(t, cfg, nil), fullRequest(openAIOpaque, ProviderOpenAI)); err != nil {
		t.Fatal(err)
	}
	got := s.requests()[0]
	if got.path != "/v1/chat/completions" {
		t.Errorf("path is %s", got.path)
	}
	if a := got.header.Get("Authorization"); a != "Bearer "+secret {
		t.Errorf("Authorization is %q", a)
	}
	golden(t, "openai_request.json", got.body)
	if !strings.Contains(string(got.body), strictTool) {
		t.Error("the schema is not sent as it is: the order of its keys matters to a model")
	}
}

func TestOpenAI_ReadsNothingFromTheEnvironment(t *testing.T) {
	for _, v := range []string{"OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"} {
		t.Setenv(v, "from-the-environment")
	}
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	s, base := serve(t, reply(200, openAIAnswer))
	cfg := openAIConfig(base)
	cfg.Key = nil
	if _, err := ask(t, route(t, cfg, nil)); err != nil {
		t.Fatal(err)
	}
	for k, v := range s.requests()[0].header {
		if strings.Contains(strings.Join(v, " "), "from-the-environment") || k == "Authorization" {
			t.Errorf("header %s: %v", k, v)
		}
	}
}

func TestOpenAI_NamesTheTokenBoundAsTheServerKnowsIt(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, base, want string }{
		{"OpenAI by default", "", "max_completion_tokens"},
		{"OpenAI in a region", "https://eu.api.openai.com/v1", "max_completion_tokens"},
		{"Azure", "https://x.openai.azure.com/openai/v1", "max_completion_tokens"},
		{"Mistral", "https://api.mistral.ai/v1", "max_tokens"},
		{"a server of one's own", "http://vllm:8000/v1", "max_tokens"},
		{"a host that looks like it", "https://api.openai.com.example.org/v1", "max_tokens"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &service{t: t, answers: []http.HandlerFunc{reply(200, openAIAnswer)}}
			cfg := openAIConfig(tc.base)
			cfg.Params.MaxOutputTokens = new(int64(9))
			if _, err := ask(t, route(t, cfg, transport{s})); err != nil {
				t.Fatal(err)
			}
			var body map[string]any
			if err := json.Unmarshal(s.requests()[0].body, &body); err != nil {
				t.Fatal(err)
			}
			for _, k := range []string{"max_tokens", "max_completion_tokens"} {
				if _, has := body[k]; has != (k == tc.want) {
					t.Errorf("%s sent: %v, want %s alone", k, has, tc.want)
				}
			}
		})
	}
}

func TestOpenAI_UsesTheRecordedModelAndParams(t *testing.T) {
	t.Parallel()
	s, base := serve(t, reply(200, openAIAnswer))
	cfg := openAIConfig(base)
	cfg.Model, cfg.Params.Temperature = "new-model", new(1.0)
	_, err := ask(t, route(t, cfg, nil), func(r *fact.Request) {
		r.Spec.Model, r.Spec.Params = "old-model", []byte(`{"later_param":1,"temperature":0.5}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Model       string  `json:"model"`
		Temperature float64 `json:"temperature"`
	}
	if err := json.Unmarshal(s.requests()[0].body, &body); err != nil {
		t.Fatal(err)
	}
	if body.Model != "old-model" || body.Temperature != 0.5 {
		t.Errorf("sent %+v, want what was recorded", body)
	}
}

func TestOpenAI_ReadsAnAnswer(t *testing.T) {
	t.Parallel()
	_, base := serve(t, reply(200, openAIAnswer))
	cfg := openAIConfig(base)
	cfg.Price = &Price{InputMicrosPerMTok: 250_000, OutputMicrosPerMTok: 2_000_000, CachedMicrosPerMTok: new(int64(25_000))}
	got, err := ask(t, route(t, cfg, nil), func(r *fact.Request) { r.Step = 3 })
	if err != nil {
		t.Fatal(err)
	}
	if got.Duration <= 0 {
		t.Error("no duration")
	}
	got.Duration = 0
	want := &fact.Response{
		Step: 3, Text: "Hello.", FinishReason: schemas.FinishStop, Provider: "openai", Model: "gpt-5-mini-2025-08-07",
		Usage: schemas.Usage{InputTokens: 100, OutputTokens: 20, CacheReadTokens: 60, ReasoningTokens: 12},
		// 40 * 0.25 + 60 * 0.025 + 20 * 2 = 51.5 micros.
		CostMicros: new(int64(52)),
		Opaque:     []byte(`{"role":"assistant","content":"Hello.","refusal":null,"annotations":[]}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOpenAI_TakesWhatServersReallySend(t *testing.T) {
	t.Parallel()
	call := func(id, args string) string {
		return `{"id":` + id + `,"type":"function","function":{"name":"f","arguments":` + args + `}}`
	}
	made0, made1 := madeID("t-1", 0, 0), madeID("t-1", 0, 1)
	tests := []struct {
		name   string
		body   string
		text   string
		finish string
		calls  []fact.Asked
		opaque string
	}{
		{
			name:   "parallel calls",
			body:   openAIChoice(`{"role":"assistant","content":null,"tool_calls":[`+call(`"c1"`, `"{\"a\":1}"`)+`,`+call(`"c2"`, `"{}"`)+`]}`, "tool_calls"),
			finish: schemas.FinishToolCall,
			calls:  []fact.Asked{{Name: "f", CallID: "c1", Arguments: []byte(`{"a":1}`)}, {Name: "f", CallID: "c2", Arguments: []byte(`{}`)}},
			opaque: `{"role":"assistant","content":null,"tool_calls":[` + call(`"c1"`, `"{\"a\":1}"`) + `,` + call(`"c2"`, `"{}"`) + `]}`,
		},
		{
			name:   "calls under finish_reason stop, with text",
			body:   openAIChoice(`{"role":"assistant","content":"Let me see.","tool_calls":[`+call(`"aB3dE6gH9"`, `"{}"`)+`]}`, "stop"),
			text:   "Let me see.",
			finish: schemas.FinishToolCall,
			calls:  []fact.Asked{{Name: "f", CallID: "aB3dE6gH9", Arguments: []byte(`{}`)}},
			opaque: `{"role":"assistant","content":"Let me see.","tool_calls":[` + call(`"aB3dE6gH9"`, `"{}"`) + `]}`,
		},
		{
			name:   "calls without ids, arguments as an object or none",
			body:   openAIChoice(`{"role":"assistant","content":"","thinking":"<hm>","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}},`+call(`""`, `""`)+`]}`, "tool_calls"),
			finish: schemas.FinishToolCall,
			calls:  []fact.Asked{{Name: "f", CallID: made0, Arguments: []byte(`{"a":1}`)}, {Name: "f", CallID: made1, Arguments: []byte(`{}`)}},
			opaque: `{"content":"","role":"assistant","thinking":"<hm>","tool_calls":[{"function":{"name":"f","arguments":{"a":1}},"id":"` + made0 + `"},` +
				`{"function":{"arguments":"{}","name":"f"},"id":"` + made1 + `","type":"function"}]}`,
		},
		{
			name:   "two calls with one id",
			body:   openAIChoice(`{"role":"assistant","tool_calls":[`+call(`"f"`, `"{}"`)+`,`+call(`"f"`, `"{}"`)+`]}`, "tool_calls"),
			finish: schemas.FinishToolCall,
			calls:  []fact.Asked{{Name: "f", CallID: "f", Arguments: []byte(`{}`)}, {Name: "f", CallID: made1, Arguments: []byte(`{}`)}},
			opaque: `{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"},"id":"f","type":"function"},` +
				`{"function":{"name":"f","arguments":"{}"},"id":"` + made1 + `","type":"function"}]}`,
		},
		{
			name:   "a call that was cut",
			body:   openAIChoice(`{"role":"assistant","tool_calls":[`+call(`"c"`, `"{\"a\":"`)+`]}`, "length"),
			finish: schemas.FinishLength,
			calls:  []fact.Asked{{Name: "f", CallID: "c", Arguments: []byte(`{"a":`)}},
			// Sent back as it is, it would fail the next request to most servers.
			opaque: `{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"text\":\"{\\\"a\\\":\"}","name":"f"},"id":"c","type":"function"}]}`,
		},
		{
			name:   "text that was cut",
			body:   openAIChoice(`{"role":"assistant","content":"Half a sen"}`, "length"),
			text:   "Half a sen",
			finish: schemas.FinishLength,
			opaque: `{"role":"assistant","content":"Half a sen"}`,
		},
		{
			name:   "Mistral's cut and its content in parts",
			body:   openAIChoice(`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"Hi"},{"type":"text","text":"!"}]}`, "model_length"),
			text:   "Hi!",
			finish: schemas.FinishLength,
			opaque: `{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"Hi"},{"type":"text","text":"!"}]}`,
		},
		{
			name:   "a filter in the middle",
			body:   openAIChoice(`{"role":"assistant","content":"Part"}`, "content_filter"),
			text:   "Part",
			finish: schemas.FinishContentFilter,
			opaque: `{"role":"assistant","content":"Part"}`,
		},
		{
			name:   "nothing at all",
			body:   openAIChoice(`{"role":"assistant","content":null}`, "stop"),
			finish: schemas.FinishStop,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &service{t: t, answers: []http.HandlerFunc{reply(200, tc.body)}}
			got, err := ask(t, route(t, openAIConfig("http://local/v1"), transport{s}))
			if err != nil {
				t.Fatal(err)
			}
			if got.Text != tc.text || got.FinishReason != tc.finish || !reflect.DeepEqual(got.Calls, tc.calls) {
				t.Errorf("got  %q %s %s\nwant %q %s %s", got.Text, got.FinishReason, got.Calls, tc.text, tc.finish, tc.calls)
			}
			if string(got.Opaque) != tc.opaque {
				t.Errorf("opaque is %s\nwant %s", got.Opaque, tc.opaque)
			}
		})
	}
}

func TestOpenAI_SendsItsOwnAnswerBackUnchanged(t *testing.T) {
	t.Parallel()
	answer := openAIChoice(openAIOpaque, "tool_calls")
	s, base := serve(t, reply(200, answer))
	r := route(t, openAIConfig(base), nil)
	first, err := ask(t, r)
	if err != nil {
		t.Fatal(err)
	}
	messages := fact.AppendStep(nil, first, []*fact.Result{
		{Status: schemas.StatusOK, Output: []byte(`"one"`)}, {Status: schemas.StatusOK, Output: []byte(`"two"`)},
	})
	if _, err := ask(t, r, func(req *fact.Request) { req.Messages = append(req.Messages, messages...) }); err != nil {
		t.Fatal(err)
	}
	var body struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(s.requests()[1].body, &body); err != nil {
		t.Fatal(err)
	}
	if len(body.Messages) != 4 || string(body.Messages[1]) != openAIOpaque {
		t.Errorf("sent back %s\nwant %s", body.Messages[1], openAIOpaque)
	}
	if want := `{"content":"two","tool_call_id":"call_B","role":"tool"}`; string(body.Messages[3]) != want {
		t.Errorf("result is %s, want %s", body.Messages[3], want)
	}
}

func TestOpenAI_RefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		code       schemas.Code
		contains   string
	}{
		{"no choices", `{"id":"c","model":"m","choices":[]}`, schemas.CodeModelInvalidResponse, "no choice"},
		{"not a completion", `{"hello":"world"}`, schemas.CodeModelInvalidResponse, "no choice"},
		{"a list", `[]`, schemas.CodeModelInvalidResponse, ""},
		{"not JSON", `<html>payload</html>`, schemas.CodeModelInvalidResponse, "base_url of model main"},
		{"an unknown finish", openAIChoice(`{"content":"x"}`, "bored"), schemas.CodeModelInvalidResponse, `"bored"`},
		{"a finish that is content", openAIChoice(`{"content":"x"}`, "the payload"), schemas.CodeModelInvalidResponse, `""`},
		{"no finish", openAIChoice(`{"content":"x"}`, ""), schemas.CodeModelInvalidResponse, "finish_reason"},
		{"calls that are not there", openAIChoice(`{"content":"x"}`, "tool_calls"), schemas.CodeModelInvalidResponse, "names none"},
		{"a message of another shape", openAIChoice(`{"tool_calls":"payload"}`, "stop"), schemas.CodeModelInvalidResponse, "message"},
		{"a refusal", openAIChoice(`{"content":null,"refusal":"the payload is bad"}`, "stop"), schemas.CodeModelRefused, "refused"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &service{t: t, answers: []http.HandlerFunc{reply(200, tc.body)}}
			_, err := ask(t, route(t, openAIConfig("http://local/v1"), transport{s}))
			wantError(t, err, schemas.ClassTerminal, tc.code, tc.contains)
			if n := len(s.requests()); n != 1 {
				t.Errorf("asked %d times, want once", n)
			}
		})
	}
}

func TestOpenAI_AsksAgainWhatMayPass(t *testing.T) {
	t.Parallel()
	hangUp := func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(openAIAnswer)))
		_, _ = io.WriteString(w, openAIAnswer[:100])
	}
	slow := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	soon := []string{"Retry-After-Ms", "1"}
	tests := []struct {
		name    string
		first   http.HandlerFunc
		timeout time.Duration
	}{
		{"429 with Retry-After", reply(429, `{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}`, soon...), 0},
		{"500", reply(500, `{"error":{"message":"oops"}}`, soon...), 0},
		{"502 of a proxy", reply(502, `<html>bad gateway</html>`, soon...), 0},
		{"503", reply(503, ``, soon...), 0},
		{"529 overloaded", reply(529, `{}`, soon...), 0},
		{"408", reply(408, `{}`, soon...), 0},
		{"a status that says so itself", reply(400, `{}`, append(soon, "X-Should-Retry", "true")...), 0},
		{"trouble under status 200", reply(200, `{"error":{"message":"upstream","code":502}}`), 0},
		{"a server that breaks off", reply(200, openAIChoice(`{"content":""}`, "error")), 0},
		{"a connection reset", hangUp, 0},
		{"a body cut by the connection", cut, 0},
		{"a body cut by the server", reply(200, openAIAnswer[:100]), 0},
		{"an empty body", reply(200, ``), 0},
		{"a server that is too slow", slow, 2 * time.Second},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, base := serve(t, tc.first, reply(200, openAIAnswer))
			cfg := openAIConfig(base)
			cfg.Timeout = tc.timeout
			got, err := ask(t, route(t, cfg, nil))
			if err != nil {
				t.Fatal(err)
			}
			reqs := s.requests()
			if got.Text != "Hello." || len(reqs) != 2 {
				t.Errorf("got %q after %d requests, want Hello. after 2", got.Text, len(reqs))
			}
			if string(reqs[0].body) != string(reqs[1].body) {
				t.Error("the second request is not the first")
			}
		})
	}
}

func TestOpenAI_SaysWhatToDoAboutWhatStays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		status   int
		body     string
		code     schemas.Code
		contains string
	}{
		{"a wrong key", 401, `{"error":{"message":"Incorrect API key provided: ` + secret + `","type":"invalid_request_error","code":"invalid_api_key","param":null}}`, schemas.CodeModelUnavailable, "(invalid_request_error, invalid_api_key): it does not know the key: check api_key_env or api_key_file of model main"},
		{"no right", 403, `{"error":{"message":"payload","code":"unsupported_country"}}`, schemas.CodeModelUnavailable, "may not do this"},
		{"no such model", 404, `{"error":{"message":"no","code":"model_not_found"}}`, schemas.CodeModelUnavailable, "check model and base_url of model main"},
		{"no such path", 404, `404 page not found`, schemas.CodeModelUnavailable, "check model and base_url"},
		{"a bad request", 400, `{"error":{"message":"payload","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}`, schemas.CodeModelUnavailable, "tools[0].function.parameters"},
		{"a fault that quotes content", 400, `{"error":{"message":"payload","param":"the payload here","code":"a payload"}}`, schemas.CodeModelUnavailable, "does not take this request"},
		{"Mistral's form", 422, `{"object":"error","message":{"detail":[{"loc":["body"]}]},"type":"invalid_request_error","code":1000}`, schemas.CodeModelUnavailable, "(invalid_request_error, 1000)"},
		{"FastAPI's form", 422, `{"detail":[{"loc":["body","x"],"msg":"payload"}]}`, schemas.CodeModelUnavailable, "does not take"},
		{"Ollama's form", 404, `{"error":"model 'x' not found"}`, schemas.CodeModelUnavailable, "check model"},
		{"too long", 400, `{"error":{"message":"m","code":"context_length_exceeded"}}`, schemas.CodeModelUnavailable, "limits.context_bytes"},
		{"too long for vLLM", 400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","code":400}}`, schemas.CodeModelUnavailable, "limits.context_bytes"},
		{"too large", 413, ``, schemas.CodeModelUnavailable, "limits.context_bytes"},
		{"no credit", 429, `{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}`, schemas.CodeModelUnavailable, "no credit left"},
		{"no credit by status", 402, `{}`, schemas.CodeModelUnavailable, "no credit left"},
		{"a redirect", 308, ``, schemas.CodeModelUnavailable, "redirects elsewhere"},
		{"not implemented", 501, ``, schemas.CodeModelUnavailable, "check base_url"},
		{"a filter on the request", 400, `{"error":{"message":"payload","code":"content_filter","status":400}}`, schemas.CodeModelRefused, "content policy"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, base := serve(t, reply(tc.status, tc.body, "Location", "http://127.0.0.1:1/"))
			_, err := ask(t, route(t, openAIConfig(base), nil))
			wantError(t, err, schemas.ClassTerminal, tc.code, tc.contains)
			if n := len(s.requests()); n != 1 {
				t.Errorf("asked %d times, want once", n)
			}
		})
	}
}

func TestOpenAI_TakesAnAnswerAtTheLimitAndRefusesOneAbove(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxResponseBytes - 1, maxResponseBytes, maxResponseBytes + 1} {
		t.Run(fmt.Sprintf("%d bytes", n), func(t *testing.T) {
			t.Parallel()
			_, base := serve(t, reply(200, openAIAnswer+strings.Repeat(" ", n-len(openAIAnswer))))
			resp, err := ask(t, route(t, openAIConfig(base), nil))
			if n > maxResponseBytes {
				wantError(t, err, schemas.ClassTerminal, schemas.CodeModelInvalidResponse, "the answer has more than 16777216 bytes")
				return
			}
			if err != nil || resp.Text != "Hello." {
				t.Errorf("got %+v, %v", resp, err)
			}
		})
	}
}

func TestOpenAI_AsksForTheKeyEachTime(t *testing.T) {
	t.Parallel()
	s, base := serve(t, reply(200, openAIAnswer))
	keys := []string{"check", "one", "two"}
	cfg := openAIConfig(base)
	n := 0
	cfg.Key = func() (string, error) {
		if n == len(keys) {
			return "", os.ErrNotExist
		}
		n++
		return keys[n-1], nil
	}
	r := route(t, cfg, nil)
	for range 2 {
		if _, err := ask(t, r); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"Bearer one", "Bearer two"} {
		if got := s.requests()[i].header.Get("Authorization"); got != want {
			t.Errorf("request %d has %q, want %q", i, got, want)
		}
	}
	_, err := ask(t, r)
	wantError(t, err, schemas.ClassTerminal, schemas.CodeModelUnavailable, "key cannot be read")
}
