package kafka

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// scriptedRegistry is a network that answers as a test says; it notes when it was asked.
type scriptedRegistry struct {
	answers []func(*http.Request) (*http.Response, error)
	asked   []time.Time
}

func (s *scriptedRegistry) RoundTrip(req *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, time.Now())
	next := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return next(req)
}

func says(status int, header http.Header, body string) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	}
}

func breaks(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") }

func hangs(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func newScripted(t *testing.T, answers ...func(*http.Request) (*http.Response, error)) (*Registry, *scriptedRegistry) {
	t.Helper()
	s := &scriptedRegistry{answers: answers}
	r, err := NewRegistry(RegistryConfig{URL: "http://registry", Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

const (
	found7   = `{"schema":"\"string\""}`
	missing7 = `{"error_code":40403,"message":"Schema 7 not found"}`
)

func TestRegistry_TriesAgainUntilTheRegistryAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := newScripted(t, breaks, says(503, nil, ""), hangs, says(429, http.Header{"Retry-After": {"3"}}, ""), says(200, nil, found7))
		text, err := r.SchemaByID(t.Context(), 7)
		if err != nil || text != `"string"` {
			t.Fatalf("got %q, %v", text, err)
		}
		if len(s.asked) != 5 {
			t.Fatalf("asked %d times, want 5", len(s.asked))
		}
		for i, bound := range []struct{ least, most time.Duration }{
			{50 * time.Millisecond, 100 * time.Millisecond},
			{100 * time.Millisecond, 200 * time.Millisecond},
			{5200 * time.Millisecond, 5400 * time.Millisecond}, // the request that hung, and the pause
			{3 * time.Second, 3 * time.Second},
		} {
			if got := s.asked[i+1].Sub(s.asked[i]); got < bound.least || got > bound.most {
				t.Errorf("try %d came after %s, want %s to %s", i+1, got, bound.least, bound.most)
			}
		}
	})
}

func TestRegistry_GivesUpAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := newScripted(t, breaks)
		begun := time.Now()
		_, err := r.SchemaByID(t.Context(), 7)
		wantError(t, err, schemas.ClassRetryable, "cannot be reached")
		if took := time.Since(begun); took > 15*time.Second || took < 12*time.Second {
			t.Errorf("gave up after %s, want about 15s", took)
		}
		if len(s.asked) < 8 || len(s.asked) > 24 {
			t.Errorf("asked %d times", len(s.asked))
		}
		if !strings.Contains(err.Error(), "connection reset") {
			t.Errorf("the cause is lost: %v", err)
		}
	})
}

func TestRegistry_AsksAgainForWhatDidNotExistAfterSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := newScripted(t, says(404, nil, missing7), says(200, nil, found7))
		for range 3 {
			_, err := r.SchemaByID(t.Context(), 7)
			wantError(t, err, schemas.ClassTerminal, "does not exist")
		}
		if len(s.asked) != 1 {
			t.Errorf("asked %d times for a missing schema, want once", len(s.asked))
		}
		time.Sleep(missingTTL)
		if text, err := r.SchemaByID(t.Context(), 7); err != nil || text != `"string"` {
			t.Errorf("after it was registered: %q, %v", text, err)
		}
		time.Sleep(1000 * time.Hour)
		if _, err := r.SchemaByID(t.Context(), 7); err != nil || len(s.asked) != 2 {
			t.Errorf("a known schema was asked for again: %d, %v", len(s.asked), err)
		}
	})
}

func TestSchemaCache_StaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	c := newSchemaCache()
	text := strings.Repeat("x", maxCachedBytes/100)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range 5000 {
		c.keepLocked(strings.Repeat("k", i%100)+string(rune(i)), text)
		if len(c.mu.found) > maxCachedSchemas || c.mu.bytes > maxCachedBytes {
			t.Fatalf("%d schemas with %d bytes", len(c.mu.found), c.mu.bytes)
		}
	}
	for i := range maxMissing + 100 {
		c.missLocked(string(rune(i)), &schemas.Error{})
	}
	if len(c.mu.missing) != maxMissing {
		t.Errorf("%d missing ids are kept, want %d", len(c.mu.missing), maxMissing)
	}
}
