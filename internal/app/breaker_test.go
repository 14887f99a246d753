package app

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// providers play the models of a test, by the host they are asked at.
type providers struct {
	mu    sync.Mutex
	down  map[string]bool
	asked map[string]int
}

// mend ends every outage.
func (p *providers) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.down)
}

func (p *providers) count(host string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[host]
}

// RoundTrip answers after 100 ms.
func (p *providers) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[req.URL.Host]++
	status, body := http.StatusOK, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`
	if p.down[req.URL.Host] {
		status, body = http.StatusServiceUnavailable, `{}`
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

const twoProviders = `version: 1
agents:
  lame: {model: lame, system: You answer., limits: {duration: 10m}}
  fit: {model: fit, system: You answer.}
models:
  lame: {provider: openai, model: m, base_url: "http://lame/v1"}
  fit: {provider: openai, model: m, base_url: "http://fit/v1"}
`

// broken is a bubble in which one provider is down and its breaker open; the turn that found out waits within its time.
func broken(t *testing.T) (*bubble, *providers, *running) {
	t.Helper()
	models := &providers{down: map[string]bool{"lame": true}, asked: make(map[string]int)}
	b := newBubble(t, twoProviders, models)
	w := b.start()
	b.send(turnOf("lame", "first", "first"))
	b.until("the provider is down", func() bool { return b.engine.models.Down("lame") })
	return b, models, w
}

// A provider that is down for nine minutes fails none of the 200 turns that wait for it, is not asked but by one turn at a time,
// and holds up no turn of another.
func TestBreaker_AnOutageFailsNoTurnOfTheBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, models, w := broken(t)
		asked := models.count("lame")
		b.send(append(turnsOf("lame", 200, 60), turnsOf("fit", 200, 60)...)...)
		b.until("the turns of the other agent complete", func() bool { return count(b.ended, "fit-") == 200 })
		b.pass(9 * time.Minute)
		if n := count(b.started, "lame-"); n > 0 {
			t.Errorf("%d turns have begun although their provider is down", n)
		}
		if n := models.count("lame") - asked; n == 0 || n > 50 {
			t.Errorf("the provider was asked %d times in nine minutes", n)
		}
		if s := w.Status(); !s.Ready || !s.Live {
			t.Errorf("the worker is ready %t (%s), live %t (%s)", s.Ready, s.ReadyReason, s.Live, s.LiveReason)
		}
		for _, m := range b.engine.models.Status() {
			if m.Down != (m.Model == "lame") || m.Waiting > 0 != m.Down {
				t.Errorf("model %s: %+v", m.Model, m)
			}
		}
		models.mend()
		b.until("all turns end", func() bool { return len(b.ended) == 401 })
		for id, end := range b.ended {
			if end.Status != schemas.StatusCompleted {
				t.Errorf("turn %s ended %s: %s, %s", id, end.Status, end.Code, end.Message)
			}
		}
	})
}

// An outage that outlasts the time of turns costs those that had begun, and one more each time that nobody is left to probe.
func TestBreaker_AnOutageOfHoursCostsATurnEachDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, models, _ := broken(t)
		b.send(turnsOf("lame", 100, 100)...)
		b.pass(time.Hour)
		failed := len(b.ended)
		if n := len(b.started); n > 7 || n != failed+1 {
			t.Errorf("in an hour %d turns have begun and %d failed", n, failed)
		}
		for id, end := range b.ended {
			if end.Code != schemas.CodeModelUnavailable || !strings.Contains(end.Message, "status 503") {
				t.Errorf("turn %s ended %s, %s", id, end.Code, end.Message)
			}
		}
		models.mend()
		b.until("all turns end", func() bool { return len(b.ended) == 101 })
		lost := 0
		for id, end := range b.ended {
			if end.Status == schemas.StatusCompleted {
				continue
			}
			lost++
			if end.Code != schemas.CodeModelUnavailable {
				t.Errorf("turn %s ended %s: %s", id, end.Status, end.Code)
			}
		}
		if lost > failed+1 { // The one that asked the model just then may still have been refused.
			t.Errorf("%d turns failed, of which %d in the outage", lost, failed)
		}
	})
}

func TestBreaker_WaitingTurnsHonourCancelDeadlineAndRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, models, _ := broken(t)
		late := turnOf("lame", "late", "late")
		late.Deadline = new(time.Now().Add(30 * time.Second))
		b.send(turnOf("lame", "cancelled", "s"), turnOf("lame", "other", "t"), late)
		b.pass(10 * time.Second)
		b.send(&schemas.TurnEvent{Type: schemas.InputCancel, TurnID: "other", SessionID: "not its own"})
		b.send(&schemas.TurnEvent{Type: schemas.InputCancel, TurnID: "cancelled", SessionID: "s"})
		b.until("the cancelled turn ends", func() bool { return b.ended["cancelled"] != nil })
		if end := b.ended["cancelled"]; end.Status != schemas.StatusCancelled {
			t.Errorf("the cancelled turn ended %s", end.Status)
		}
		b.until("the turn with a deadline ends", func() bool { return b.ended["late"] != nil })
		if end := b.ended["late"]; end.Code != schemas.CodeDeadlineExceeded {
			t.Errorf("the turn with a deadline ended %s, %s", end.Status, end.Code)
		}
		if b.started["other"] {
			t.Error("a turn began by the cancel of another session's turn")
		}
		b.send(turnOf("lame", "cancelled", "s"), turnOf("fit", "behind", "s")) // A repeat does not wait, nor who comes after it.
		b.until("the turn after the repeat ends", func() bool { return b.ended["behind"] != nil })
		models.mend()
		b.until("all turns end", func() bool { return len(b.ended) == 5 })
	})
}

// A drain does not wait for a model that is down: neither for the turns that have not begun, nor for the one that asks it.
func TestBreaker_ADrainDoesNotWaitForAModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, models, w := broken(t)
		b.send(turnsOf("lame", 50, 10)...)
		b.pass(5 * time.Second)
		began := time.Now()
		if err := w.stop(); err != nil {
			t.Fatalf("drain: %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the drain took %s", took)
		}
		models.mend()
		b.start()
		b.until("all turns end", func() bool { return len(b.ended) == 51 })
		for id, end := range b.ended {
			if end.Status != schemas.StatusCompleted {
				t.Errorf("turn %s ended %s: %s", id, end.Status, end.Code)
			}
		}
	})
}
