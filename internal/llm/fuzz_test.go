package llm

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// checkAnswer says what holds whatever a server sends: a classified error that can be published, or a response that the
// conversation can go on from.
func checkAnswer(t *testing.T, cfg Config, status int, body string) {
	t.Helper()
	cfg.Attempts = 1
	s := &service{t: t, answers: []http.HandlerFunc{reply(status, body)}}
	r := route(t, cfg, transport{s})
	got, err := ask(t, r)
	if err != nil {
		if e, ok := errors.AsType[*schemas.Error](err); !ok || e.Message == "" || e.Code == "" {
			t.Errorf("error is %T: %v", err, err)
		}
		return
	}
	if got.FinishReason == "" || got.Provider != cfg.Provider {
		t.Errorf("got %+v", got)
	}
	if got.Opaque != nil && !json.Valid(got.Opaque) {
		t.Errorf("opaque is not JSON: %q", got.Opaque)
	}
	next := fact.AppendStep(nil, got, make([]*fact.Result, 0))
	if _, err := ask(t, r, func(q *fact.Request) { q.Messages = append(q.Messages, next...) }); err != nil {
		t.Errorf("the answer can't be sent back: %v", err)
	}
	for _, req := range s.requests() {
		if !json.Valid(req.body) {
			t.Errorf("sent %q", req.body)
		}
	}
}

func FuzzOpenAI_Answer(f *testing.F) {
	f.Add(200, openAIAnswer)
	f.Add(200, openAIChoice(openAIOpaque, "tool_calls"))
	f.Add(200, openAIChoice(`{"content":[{"type":"text","text":"a"}],"tool_calls":[{"function":{"name":"f","arguments":{}}},{"id":1}]}`, "length"))
	f.Add(429, `{"error":{"message":"m","code":1}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 || status == http.StatusTeapot {
			status = 200
		}
		checkAnswer(t, openAIConfig("http://local/v1"), status, body)
		if strings.Contains(body, "tool_calls") {
			checkIDs(t, body)
		}
	})
}

// checkIDs says that every call of an answer can be named by its result.
func checkIDs(t *testing.T, body string) {
	t.Helper()
	cfg := openAIConfig("http://local/v1")
	cfg.Attempts = 1
	got, err := ask(t, route(t, cfg, transport{&service{t: t, answers: []http.HandlerFunc{reply(200, body)}}}))
	if err != nil {
		return
	}
	seen := map[string]bool{}
	for _, c := range got.Calls {
		if c.CallID == "" || seen[c.CallID] {
			t.Errorf("call id %q is empty or there twice", c.CallID)
		}
		seen[c.CallID] = true
	}
}

func FuzzAnthropic_Answer(f *testing.F) {
	f.Add(200, anthropicAnswer)
	f.Add(200, anthropicMessage(anthropicContent, "tool_use"))
	f.Add(529, `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 || status == http.StatusTeapot {
			status = 200
		}
		checkAnswer(t, anthropicConfig("http://local"), status, body)
	})
}

func FuzzParseScript(f *testing.F) {
	f.Add(script)
	f.Add("version: 1\nscenarios: [{steps: [{text: '{{user}}'}]}]")
	f.Fuzz(func(t *testing.T, doc string) {
		s, err := ParseScript("s", []byte(doc))
		if err != nil {
			return
		}
		for step := range 3 {
			resp, delay, err := s.answer(&fact.Request{Step: step, Messages: []fact.Message{{Role: fact.RoleUser, Text: "refund 1"}}}, 0)
			if err == nil && (resp == nil || resp.FinishReason == "") {
				t.Errorf("step %d: %+v after %s", step, resp, delay)
			}
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("1", "")
	f.Add("", "Wed, 21 Oct 2099 07:28:00 GMT")
	f.Add("1e309", "-5")
	f.Fuzz(func(t *testing.T, ms, after string) {
		h := http.Header{"Retry-After-Ms": {ms}, "Retry-After": {after}}
		if d := retryAfter(h, time.Now()); d < 0 {
			t.Errorf("%s", d)
		}
	})
}
