package tools

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lathe-run/lathe/schemas"
)

// callWith gives a test the context of a call of a tool with that idempotency.
func callWith(t *testing.T, idempotency schemas.Idempotency, durable bool, ctx context.Context, use func(c *Context)) { //nolint:revive // t goes first.
	t.Helper()
	r, _ := newRuntime(t, Deps{}) //nolint:contextcheck // Its close has a context of its own.
	b := bindAll(t, r, AgentBinding{}, Define("tool", func(c *Context, _ struct{}) (string, error) {
		use(c)
		return "", nil
	}, with(writes(), func(o *Options) { o.Idempotency = idempotency })))
	inv := invocation()
	inv.Durable = durable
	if result, err := b.Execute(ctx, mustPrepare(t, b, "tool", ""), inv); err != nil || !result.OK() {
		t.Fatalf("execute: %+v, %v", result, err)
	}
	if err := r.Close(context.WithoutCancel(ctx)); err != nil {
		t.Fatal(err)
	}
}

// A server acts and then hangs up without an answer. On a connection that was used before, net/http takes a POST with an
// Idempotency-Key for replayable and sends it again, without an error: the server acts twice.
func TestHTTP_SendsOnceForAtMostOnce(t *testing.T) {
	t.Parallel()
	var acted atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/act" {
			return
		}
		acted.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}))
	defer server.Close()
	send := func(client *http.Client, key string) int64 {
		acted.Store(0)
		warm, err := client.Get(server.URL + "/warm")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, warm.Body)
		warm.Body.Close()
		req, err := http.NewRequest(http.MethodPost, server.URL+"/act", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set(headerIdempotencyKey, key)
		}
		if res, err := client.Do(req); err == nil {
			res.Body.Close()
			t.Error("a request without an answer has no error")
		}
		return acted.Load()
	}
	if n := send(&http.Client{Transport: &http.Transport{}}, "k"); n != 2 {
		t.Errorf("the default client sends %d times, want 2: this test proves nothing", n)
	}
	callWith(t, schemas.SafeToRetry, true, t.Context(), func(c *Context) {
		if n := send(c.HTTP(), ""); n != 2 {
			t.Errorf("the client of a call that is safe to retry sends %d times, want 2: this test proves nothing", n)
		}
	})
	callWith(t, schemas.AtMostOnce, true, t.Context(), func(c *Context) {
		if n := send(c.HTTP(), ""); n != 1 {
			t.Errorf("the client of a call that may run at most once sends %d times, want 1", n)
		}
	})
}

func TestHTTP_CarriesTheKeyOfACommittedCallAndTheTrace(t *testing.T) {
	t.Parallel()
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { header = req.Header }))
	defer server.Close()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	for _, tc := range []struct {
		name, own, want string
		durable         bool
		idempotency     schemas.Idempotency
	}{
		{"committed", "", "t1/2/1", true, schemas.AtMostOnce},
		{"committed, safe to retry", "", "t1/2/1", true, schemas.SafeToRetry},
		{"not committed", "", "", false, schemas.SafeToRetry},
		{"set by the tool", "mine", "mine", true, schemas.AtMostOnce},
	} {
		callWith(t, tc.idempotency, tc.durable, ctx, func(c *Context) {
			for _, under := range []context.Context{c, t.Context()} {
				req, err := http.NewRequestWithContext(under, http.MethodPost, server.URL, strings.NewReader("{}"))
				if err != nil {
					t.Error(err)
					return
				}
				if tc.own != "" {
					req.Header.Set(headerIdempotencyKey, tc.own)
				}
				client := c.HTTP()
				if client.Timeout <= 0 || client.Timeout > 30*time.Second {
					t.Errorf("%s: the client has the timeout %s", tc.name, client.Timeout)
				}
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
				if got := header.Get(headerIdempotencyKey); got != tc.want {
					t.Errorf("%s: key %q, want %q", tc.name, got, tc.want)
				}
				if got := header.Get("Traceparent"); !strings.HasPrefix(got, "00-01000000000000000000000000000000-02") {
					t.Errorf("%s: traceparent is %q", tc.name, got)
				}
				if req.Header.Get("Traceparent") != "" {
					t.Errorf("%s: the tool's own request was changed", tc.name)
				}
			}
		})
	}
}

func TestHTTP_FollowsNoRedirectThatSendsABodyAgain(t *testing.T) {
	t.Parallel()
	var posts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.Method == http.MethodPost:
			posts.Add(1)
			http.Redirect(w, req, "/again", http.StatusTemporaryRedirect)
		case req.URL.Path == "/from":
			http.Redirect(w, req, "/to", http.StatusFound)
		}
	}))
	defer server.Close()
	callWith(t, schemas.AtMostOnce, true, t.Context(), func(c *Context) {
		res, err := c.HTTP().Post(server.URL, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return
		}
		res.Body.Close()
		if res.StatusCode != http.StatusTemporaryRedirect || posts.Load() != 1 {
			t.Errorf("status %d after %d posts, want the redirect after one", res.StatusCode, posts.Load())
		}
		res, err = c.HTTP().Get(server.URL + "/from")
		if err != nil {
			t.Error(err)
			return
		}
		res.Body.Close()
		if res.Request.URL.Path != "/to" {
			t.Errorf("a redirect of a GET was not followed: %s", res.Request.URL)
		}
	})
}
