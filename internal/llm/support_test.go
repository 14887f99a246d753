package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const secret = "sk-very-secret-key"

func key() (string, error) { return secret, nil }

// seen is a request as a server got it.
type seen struct {
	path   string
	header http.Header
	body   []byte
	at     time.Time
}

// service answers requests in order, the last answer for ever, and remembers what it was asked.
type service struct {
	t       *testing.T
	answers []http.HandlerFunc

	mu  sync.Mutex
	got []seen
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Errorf("read the request: %v", err)
	}
	s.mu.Lock()
	n := min(len(s.got), len(s.answers)-1)
	s.got = append(s.got, seen{path: r.URL.Path, header: r.Header.Clone(), body: body, at: time.Now()})
	s.mu.Unlock()
	s.answers[n](w, r)
}

func (s *service) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.got...)
}

// transport lets a service answer without a network, for bubbles.
type transport struct{ service *service }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	t.service.ServeHTTP(w, r)
	if w.Code == http.StatusTeapot {
		return nil, errors.New("connection reset by peer")
	}
	return w.Result(), nil
}

func serve(t *testing.T, answers ...http.HandlerFunc) (*service, string) {
	t.Helper()
	s := &service{t: t, answers: answers}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, srv.URL
}

func reply(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func route(t *testing.T, cfg Config, rt http.RoundTripper) *Router {
	t.Helper()
	deps := Deps{Transport: rt}
	deps.private.jitter = func() float64 { return 0 }
	r, err := New([]Config{cfg}, deps)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

func openAIConfig(base string) Config {
	return Config{Name: "main", Provider: ProviderOpenAI, Model: "gpt-5-mini", BaseURL: base, Key: key}
}

func anthropicConfig(base string) Config {
	return Config{Name: "main", Provider: ProviderAnthropic, Model: "claude-sonnet-4-5", BaseURL: base, Key: key}
}

// ask sends the simplest request, by the model's own spec.
func ask(t *testing.T, r *Router, change ...func(*fact.Request)) (*fact.Response, error) {
	t.Helper()
	spec, ok := r.Spec("main")
	if !ok {
		t.Fatal("no model main")
	}
	req := &fact.Request{
		Spec: spec, TurnID: "t-1", Session: "s-1", Agent: "support",
		Messages: []fact.Message{{Role: fact.RoleUser, Text: "payload-of-the-user"}},
	}
	for _, c := range change {
		c(req)
	}
	return r.Respond(t.Context(), req)
}

// wantError checks class and code, that the message says something, and that neither key nor payload leaked.
func wantError(t *testing.T, err error, class schemas.Class, code schemas.Code, contains string) *schemas.Error {
	t.Helper()
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok {
		t.Fatalf("error is %T (%v), want *schemas.Error", err, err)
	}
	if e.Class != class || e.Code != code {
		t.Errorf("error is %s %s (%v), want %s %s", e.Class, e.Code, e, class, code)
	}
	if !strings.Contains(e.Message, contains) || e.Message == "" {
		t.Errorf("message is %q, want %q in it", e.Message, contains)
	}
	for _, leak := range []string{secret, "payload"} {
		if strings.Contains(e.Message, leak) {
			t.Errorf("message %q holds %q", e.Message, leak)
		}
	}
	if strings.Contains(e.Error(), secret) {
		t.Errorf("error %q holds the key", e.Error())
	}
	return e
}

// golden compares JSON with a file under testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, got, "", "  "); err != nil {
		t.Fatalf("the request is not JSON: %v\n%s", err, got)
	}
	pretty.WriteByte('\n')
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, pretty.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(pretty.Bytes(), want) {
		t.Errorf("%s differs; run with -update if that is right. got:\n%s", name, pretty.Bytes())
	}
}

func background() context.Context { return context.Background() }
