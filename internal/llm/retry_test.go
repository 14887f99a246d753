package llm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// gaps are the times between the requests a service got.
func gaps(reqs []seen) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(reqs); i++ {
		out = append(out, reqs[i].at.Sub(reqs[i-1].at))
	}
	return out
}

func TestRetry_WaitsAsAskedElseLongerEachTime(t *testing.T) {
	t.Parallel()
	unavailable := func(headers ...string) http.HandlerFunc { return reply(429, `{}`, headers...) } // Which opens no breaker.
	inSeconds := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", time.Now().Add(time.Duration(n)*time.Second).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	tests := []struct {
		name    string
		jitter  float64
		answers []http.HandlerFunc
		want    []time.Duration
	}{
		{"seconds", 0, []http.HandlerFunc{reply(429, ``, "Retry-After", "7")}, []time.Duration{7 * time.Second}},
		{"a part of a second", 0, []http.HandlerFunc{reply(429, ``, "Retry-After", "0.5")}, []time.Duration{500 * time.Millisecond}},
		{"milliseconds", 0, []http.HandlerFunc{reply(429, ``, "Retry-After-Ms", "1500", "Retry-After", "9")}, []time.Duration{1500 * time.Millisecond}},
		// The bubble's clock starts at a whole second, so the date is exact.
		{"a date", 0, []http.HandlerFunc{inSeconds(11)}, []time.Duration{11 * time.Second}},
		{"a little more than asked", 0.5, []http.HandlerFunc{reply(429, ``, "Retry-After", "8")}, []time.Duration{8*time.Second + 400*time.Millisecond}},
		{"nonsense", 0, []http.HandlerFunc{reply(429, ``, "Retry-After", "soon")}, []time.Duration{250 * time.Millisecond}},
		{
			"doubling to a bound", 0,
			[]http.HandlerFunc{unavailable(), unavailable(), unavailable(), unavailable(), unavailable(), unavailable(), unavailable(), unavailable()},
			[]time.Duration{
				250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
				15 * time.Second, 15 * time.Second,
			},
		},
		{"half of it random", 0.5, []http.HandlerFunc{unavailable()}, []time.Duration{375 * time.Millisecond}},
		{"transport failures alike", 0, []http.HandlerFunc{reply(http.StatusTeapot, ``)}, []time.Duration{250 * time.Millisecond}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &service{t: t, answers: append(tc.answers, reply(200, openAIAnswer))}
				deps := Deps{Transport: transport{s}}
				deps.private.jitter = func() float64 { return tc.jitter }
				r, err := New([]Config{openAIConfig("http://local/v1")}, deps)
				if err != nil {
					t.Fatal(err)
				}
				got, err := ask(t, r)
				if err != nil {
					t.Fatal(err)
				}
				if g, w := fmt.Sprint(gaps(s.requests())), fmt.Sprint(tc.want); g != w {
					t.Errorf("waited %s, want %s", g, w)
				}
				var total time.Duration
				for _, d := range tc.want {
					total += d
				}
				if got.Duration != total {
					t.Errorf("duration is %s, want %s, waits included", got.Duration, total)
				}
			})
		})
	}
}

func TestRetry_GivesUpWhenTheTurnHasNoTimeForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{t: t, answers: []http.HandlerFunc{reply(503, `{"error":{"message":"payload"}}`), reply(429, ``, "Retry-After", "20")}}
		r := route(t, openAIConfig("http://local/v1"), transport{s})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		spec, _ := r.Spec("main")
		_, err := r.Respond(ctx, &fact.Request{Spec: spec})
		e := wantError(t, err, schemas.ClassRetryable, schemas.CodeModelUnavailable, "status 429; given up after 2 attempts")
		if e.RetryAfter != 20*time.Second {
			t.Errorf("RetryAfter is %s, want 20s", e.RetryAfter)
		}
		if d := time.Since(start); d != 250*time.Millisecond {
			t.Errorf("took %s, want to give up at once when the next wait would not fit", d)
		}
	})
}

func TestRetry_GivesUpAfterTheAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{t: t, answers: []http.HandlerFunc{reply(500, ``)}}
		cfg := openAIConfig("http://local/v1")
		cfg.Attempts = 3
		_, err := ask(t, route(t, cfg, transport{s}))
		wantError(t, err, schemas.ClassRetryable, schemas.CodeModelUnavailable, "given up after 3 attempts")
		if n := len(s.requests()); n != 3 {
			t.Errorf("asked %d times, want 3", n)
		}
	})
}

func TestRetry_WithoutADeadlineDoesNotWaitForHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{t: t, answers: []http.HandlerFunc{reply(429, ``, "Retry-After", "1e300")}}
		_, err := ask(t, route(t, openAIConfig("http://local/v1"), transport{s}))
		wantError(t, err, schemas.ClassRetryable, schemas.CodeModelUnavailable, "429")
	})
}

func TestRespond_GivesTheCauseOfACancelUnwrapped(t *testing.T) {
	t.Parallel()
	cause := errors.New("partition lost")
	never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	tests := []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"during a request", never},
		{"during a wait", reply(429, ``, "Retry-After", "60")},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := route(t, openAIConfig("http://local/v1"), transport{&service{t: t, answers: []http.HandlerFunc{tc.answer}}})
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Second, func() { cancel(cause) })
				spec, _ := r.Spec("main")
				if _, err := r.Respond(ctx, &fact.Request{Spec: spec}); err != cause { //nolint:errorlint // unwrapped is the promise
					t.Errorf("got %v, want the cause itself", err)
				}
				if _, err := r.Respond(ctx, &fact.Request{Spec: spec}); err != cause { //nolint:errorlint // unwrapped is the promise
					t.Errorf("afterwards got %v, want the cause itself", err)
				}
			})
		})
	}
}

func TestRespond_GivesTheCauseOfTheTurnsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		r := route(t, openAIConfig("http://local/v1"), transport{&service{t: t, answers: []http.HandlerFunc{never}}})
		cause := errors.New("turn budget")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		spec, _ := r.Spec("main")
		if _, err := r.Respond(ctx, &fact.Request{Spec: spec}); err != cause { //nolint:errorlint // unwrapped is the promise
			t.Errorf("got %v, want the cause itself", err)
		}
	})
}

func TestRespond_BoundsOneRequestNotTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		s := &service{t: t, answers: []http.HandlerFunc{never}}
		cfg := openAIConfig("http://local/v1")
		cfg.Timeout, cfg.Attempts = 5*time.Second, 2
		_, err := ask(t, route(t, cfg, transport{s}))
		wantError(t, err, schemas.ClassRetryable, schemas.CodeModelUnavailable, "did not answer within 5s")
		if g := gaps(s.requests()); len(g) != 1 || g[0] != 5*time.Second+250*time.Millisecond {
			t.Errorf("gaps are %v", g)
		}
	})
}

func TestRespond_KeepsToItsConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		work := func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			timer := time.NewTimer(time.Second)
			<-timer.C
			mu.Lock()
			running--
			mu.Unlock()
			reply(200, openAIAnswer)(w, r)
		}
		cfg := openAIConfig("http://local/v1")
		cfg.Concurrency = 2
		r := route(t, cfg, transport{&service{t: t, answers: []http.HandlerFunc{work}}})
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := ask(t, r); err != nil {
					t.Error(err)
				}
			})
		}
		// One that gives up while it waits for a place takes none.
		ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("enough"))
		defer cancel()
		synctest.Wait()
		spec, _ := r.Spec("main")
		if _, err := r.Respond(ctx, &fact.Request{Spec: spec}); err == nil || err.Error() != "enough" {
			t.Errorf("got %v, want its cause", err)
		}
		wg.Wait()
		if most != 2 || time.Since(start) != 3*time.Second {
			t.Errorf("%d at once, %s in all; want 2 and 3s", most, time.Since(start))
		}
	})
}

func TestRespond_DoesNotHoldAPlaceWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{t: t, answers: []http.HandlerFunc{reply(429, ``, "Retry-After", "60"), reply(200, openAIAnswer)}}
		cfg := openAIConfig("http://local/v1")
		cfg.Concurrency = 1
		r := route(t, cfg, transport{s})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := ask(t, r); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		start := time.Now()
		if _, err := ask(t, r); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("waited %s for a place that nobody used", d)
		}
		wg.Wait()
	})
}

func TestRetry_LogsWithoutContent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &service{t: t, answers: []http.HandlerFunc{
			reply(500, `{"error":{"message":"bad key `+secret+`","type":"server_error"}}`), reply(200, openAIAnswer),
		}}
		r, err := New([]Config{openAIConfig("http://local/v1")}, Deps{Transport: transport{s}, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ask(t, r); err != nil {
			t.Fatal(err)
		}
		log := out.String()
		if !strings.Contains(log, "turn_id=t-1") || !strings.Contains(log, "status 500") {
			t.Errorf("log says %q", log)
		}
		if strings.Contains(log, secret) || strings.Contains(log, "payload-of-the-user") {
			t.Errorf("log leaks: %q", log)
		}
	})
}
