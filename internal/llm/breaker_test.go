package llm

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// outage is a model's server that is down and up again. It takes ten milliseconds for an answer.
type outage struct {
	mu     sync.Mutex
	status int // 0 is up
	asked  []time.Time
	// under is how many requests are under way, most the most there were at once since it was last reset.
	under, most int
	hang        bool
	panics      bool
}

func (o *outage) set(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status, o.most = status, o.under
}

func (o *outage) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.asked)
}

func (o *outage) RoundTrip(req *http.Request) (*http.Response, error) {
	o.mu.Lock()
	o.asked = append(o.asked, time.Now())
	o.under++
	o.most = max(o.most, o.under)
	status, hang, panics := o.status, o.hang, o.panics
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.under--
	}()
	if hang {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	if panics {
		panic("the transport panics")
	}
	<-time.After(10 * time.Millisecond)
	switch status {
	case 0:
		return httpAnswer(http.StatusOK, openAIAnswer), nil
	case -1:
		return nil, errors.New("connection refused")
	}
	return httpAnswer(status, `{"error":{"message":"no"}}`), nil
}

func httpAnswer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// open makes requests until the model counts as down.
func (o *outage) open(t *testing.T, r *Router) {
	t.Helper()
	was := o.status
	o.set(http.StatusUnauthorized) // Which is not asked again.
	for range breakerFailures {
		if _, err := ask(t, r); err == nil {
			t.Fatal("the model answers")
		}
	}
	if !r.Down("main") {
		t.Fatal("the model is not down")
	}
	o.set(was)
}

func TestBreaker_HoldsBackWhatWouldOnlyFail(t *testing.T) {
	t.Parallel()
	for _, status := range []int{500, 503, 529, 401, 402, 403, 404, -1} {
		synctest.Test(t, func(t *testing.T) {
			o := &outage{status: 503}
			r := route(t, openAIConfig("http://local/v1"), o)
			o.open(t, r)
			o.set(status)
			before, began := o.count(), time.Now()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if _, err := ask(t, r); err != nil {
						t.Errorf("status %d: a turn fails that waited: %v", status, err)
					}
				})
			}
			<-time.After(10 * time.Minute)
			synctest.Wait()
			// Half of: 1, 2, 4, 8, 16, 30 s, and 30 s from then on.
			if n := o.count() - before; n < 39 || n > 46 || o.most > 1 {
				t.Errorf("status %d: asked %d times in ten minutes, %d at once", status, n, o.most)
			}
			if s := r.Status(); len(s) != 1 || !s[0].Down || s[0].Waiting != 100 || s[0].Cause == "" || s[0].Since.After(began) || s[0].NextProbe == nil {
				t.Errorf("status %d: the status is %+v", status, s)
			}
			o.set(0)
			wg.Wait()
			if r.Down("main") || r.Status()[0].Waiting != 0 {
				t.Errorf("status %d: after the outage the status is %+v", status, r.Status())
			}
		})
	}
}

func TestBreaker_OpensOnlyWhenRequestsFailInARow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		statuses []int
		down     bool
	}{
		{"five", []int{401, 403, 404, 402, 401}, true},
		{"four", []int{401, 401, 401, 401}, false},
		{"an answer between", []int{401, 401, 401, 401, 0, 401, 401, 401, 401}, false},
		{"a refusal of one request between", []int{401, 401, 401, 401, 400, 401, 401, 401, 401}, false},
		{"refusals of single requests", []int{400, 413, 422, 400, 400, 400, 400}, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := &outage{}
				r := route(t, openAIConfig("http://local/v1"), o)
				for _, s := range tc.statuses {
					o.set(s)
					_, err := ask(t, r)
					if (err == nil) != (s == 0) {
						t.Errorf("status %d gives %v", s, err)
					}
				}
				if r.Down("main") != tc.down {
					t.Errorf("down %t, want %t", r.Down("main"), tc.down)
				}
			})
		})
	}
}

// To be told to slow down is an answer: each request waits by itself, and no other is held back.
func TestBreaker_StaysClosedWhenTheProviderSaysSlower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{status: http.StatusTooManyRequests}
		cfg := openAIConfig("http://local/v1")
		cfg.Attempts = 10
		r := route(t, cfg, o)
		if _, err := ask(t, r); err == nil {
			t.Fatal("the model answers")
		}
		if r.Down("main") {
			t.Error("the model counts as down")
		}
	})
}

func TestBreaker_AWaitEndsWithTheTurn(t *testing.T) {
	t.Parallel()
	stop := errors.New("the turn was cancelled")
	respond := func(ctx context.Context, r *Router, draining <-chan struct{}) error {
		spec, _ := r.Spec("main")
		_, err := r.Respond(ctx, &fact.Request{Spec: spec, Draining: draining})
		return err
	}
	admit := func(ctx context.Context, r *Router, draining <-chan struct{}) error {
		return r.Admit(ctx, "main", draining)
	}
	for name, wait := range map[string]func(context.Context, *Router, <-chan struct{}) error{"to ask": respond, "to begin": admit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := &outage{}
				r := route(t, openAIConfig("http://local/v1"), o)
				o.open(t, r)
				r.models["main"].breaker.mu.next = time.Now().Add(time.Hour)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(stop) })
				if err := wait(ctx, r, nil); !errors.Is(err, stop) {
					t.Errorf("a cancelled turn gives %v", err)
				}
				draining := make(chan struct{})
				time.AfterFunc(time.Second, func() { close(draining) })
				if err := wait(t.Context(), r, draining); !errors.Is(err, ErrDraining) {
					t.Errorf("a drained turn gives %v", err)
				}
				if s := r.Status()[0]; s.Waiting != 0 {
					t.Errorf("%d turns wait for ever", s.Waiting)
				}
			})
		})
	}
}

// A turn that has begun waits within its time, and says then what it waited for.
func TestBreaker_ARequestGivesUpWithItsTurnsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{status: 503}
		r := route(t, openAIConfig("http://local/v1"), o)
		o.open(t, r)
		r.models["main"].breaker.mu.next = time.Now().Add(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began, spec := time.Now(), r.models["main"].spec
		_, err := r.Respond(ctx, &fact.Request{Spec: spec})
		wantError(t, err, schemas.ClassRetryable, schemas.CodeModelUnavailable, "the model is down since 2000-01-01T00:00:00Z")
		if took := time.Since(began); took != time.Minute-breakerMargin {
			t.Errorf("it gives up after %s", took)
		}
	})
}

func TestBreaker_AProbeThatIsGivenUpIsMadeByAnother(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancelled", "panicking"} {
		synctest.Test(t, func(t *testing.T) {
			o := &outage{}
			r := route(t, openAIConfig("http://local/v1"), o)
			o.open(t, r)
			o.hang, o.panics = how == "cancelled", how == "panicking"
			spec, _ := r.Spec("main")
			ctx, cancel := context.WithCancel(t.Context())
			first := make(chan any, 1)
			go func() {
				defer func() { first <- recover() }()
				if _, err := r.Respond(ctx, &fact.Request{Spec: spec}); !errors.Is(err, context.Canceled) {
					t.Errorf("a cancelled probe gives %v", err)
				}
			}()
			<-time.After(time.Minute)
			o.mu.Lock()
			o.hang, o.panics = false, false
			o.mu.Unlock()
			cancel()
			<-first
			if _, err := ask(t, r); err != nil || r.Down("main") {
				t.Errorf("after a %s probe: %v, down %t", how, err, r.Down("main"))
			}
		})
	}
}

// What fails late was asked before the model answered again: it opens nothing.
func TestBreaker_ForgetsWhatWasAskedBeforeItClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{hang: true}
		cfg := openAIConfig("http://local/v1")
		cfg.Attempts = 2
		r := route(t, cfg, o)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := ask(t, r); err != nil {
					t.Errorf("asked again: %v", err)
				}
			})
		}
		synctest.Wait() // All hang.
		o.mu.Lock()
		o.hang = false
		o.mu.Unlock()
		o.open(t, r)
		if _, err := ask(t, r); err != nil || r.Down("main") {
			t.Errorf("the probe gives %v, down %t", err, r.Down("main"))
		}
		<-time.After(defaultTimeout) // They time out.
		synctest.Wait()
		if r.Down("main") {
			t.Error("the model is down again by what was asked before")
		}
		wg.Wait()
	})
}

// Of the turns that have not begun one may begin when a probe is due and nobody is left who has begun.
func TestBreaker_LetsTurnsBeginOneByOneToProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{status: 503}
		r := route(t, openAIConfig("http://local/v1"), o)
		o.open(t, r)
		var mu sync.Mutex
		var begun []time.Duration
		began := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := r.Admit(t.Context(), "main", nil); err != nil {
					t.Errorf("Admit: %v", err)
				}
				mu.Lock()
				begun = append(begun, time.Since(began))
				mu.Unlock()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				spec, _ := r.Spec("main")
				_, err := r.Respond(ctx, &fact.Request{Spec: spec})
				if down := time.Since(began) <= 25*time.Minute; (err != nil) != down {
					t.Errorf("after %s Respond gives %v", time.Since(began), err)
				}
			})
		}
		<-time.After(25 * time.Minute)
		mu.Lock()
		if n := len(begun); n != 3 {
			t.Errorf("%d turns have begun in 25 minutes, at %v", n, begun)
		}
		mu.Unlock()
		o.set(0)
		wg.Wait()
		if !slices.IsSorted(begun) || begun[49] > 26*time.Minute {
			t.Errorf("the turns began at %v", begun)
		}
	})
}

func TestBreaker_IsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		o := &outage{}
		deps := Deps{Transport: o, Meter: metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")}
		r, err := New([]Config{openAIConfig("http://local/v1"), {Name: "script", Provider: ProviderScripted, Scripted: NewScripted(nil)}}, deps)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{"lathe.provider.breaker": 0, "lathe.provider.breaker.waiting": 0}
		compareMetrics(t, reader, want)
		o.open(t, r)
		want["lathe.provider.breaker"], want["lathe.provider.breaker.opens"] = 1, 1
		compareMetrics(t, reader, want)
		if _, err := ask(t, r); err != nil {
			t.Fatal(err)
		}
		want["lathe.provider.breaker"] = 0
		compareMetrics(t, reader, want)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func compareMetrics(t *testing.T, reader metric.Reader, want map[string]int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := 0
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			var points []metricdata.DataPoint[int64]
			switch d := m.Data.(type) {
			case metricdata.Gauge[int64]:
				points = d.DataPoints
			case metricdata.Sum[int64]:
				points = d.DataPoints
			}
			for _, p := range points {
				got++
				if w, ok := want[m.Name]; !ok || p.Value != w {
					t.Errorf("%s is %d, want %d", m.Name, p.Value, w)
				}
			}
		}
	}
	if got != len(want) {
		t.Errorf("%d series, want %d: a scripted model has none", got, len(want))
	}
}
