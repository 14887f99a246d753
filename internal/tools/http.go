package tools

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lathe-run/lathe/schemas"
)

const headerIdempotencyKey = "Idempotency-Key"

// clients are the transports of all tools of a process.
type clients struct {
	// shared keeps connections. On one that dies before the answer, net/http sends a replayable request a second time, and a POST
	// with an Idempotency-Key counts as one.
	shared *http.Transport
	// once opens a connection for each request, because net/http sends again only on connections it has used before. HTTP/2 is
	// off: it repeats streams that the server refused.
	once       *http.Transport
	propagator propagation.TextMapPropagator
}

func newClients(base *http.Transport, propagator propagation.TextMapPropagator) *clients {
	if base == nil {
		base = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64}
		if def, ok := http.DefaultTransport.(*http.Transport); ok {
			base = def.Clone()
			base.MaxIdleConnsPerHost = 64
		}
	}
	once := base.Clone()
	once.DisableKeepAlives = true
	once.ForceAttemptHTTP2 = false
	once.TLSNextProto = nil
	once.Protocols = new(http.Protocols)
	once.Protocols.SetHTTP1(true)
	return &clients{shared: base.Clone(), once: once, propagator: propagator}
}

func (c *clients) close() {
	c.shared.CloseIdleConnections()
	c.once.CloseIdleConnections()
}

func (c *clients) forCall(call *Context) *http.Client {
	t := &callTransport{base: c.shared, propagator: c.propagator, call: call}
	if call.call.Tool.Idempotency != schemas.AtMostOnce {
		return &http.Client{Transport: t}
	}
	t.base = c.once
	return &http.Client{Transport: t, CheckRedirect: onlyReads}
}

// onlyReads stops at redirects that would send a body again; the tool sees the redirect itself.
func onlyReads(req *http.Request, via []*http.Request) error {
	if req.Method != http.MethodGet && req.Method != http.MethodHead || len(via) >= 10 {
		return http.ErrUseLastResponse
	}
	return nil
}

// callTransport sends the requests of one attempt.
type callTransport struct {
	base       http.RoundTripper
	propagator propagation.TextMapPropagator
	call       *Context
}

// RoundTrip sends the request with the headers of the call; those that the tool has set stay.
func (t *callTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if t.call.inv.Durable && req.Header.Get(headerIdempotencyKey) == "" {
		req.Header.Set(headerIdempotencyKey, t.call.IdempotencyKey())
	}
	//nolint:contextcheck // The request and the call each have a context, and traced chooses.
	t.propagator.Inject(t.traced(req), propagation.HeaderCarrier(req.Header))
	return t.base.RoundTrip(req)
}

// traced is the context whose span the request belongs to: its own, or the call's when the tool made it without one.
func (t *callTransport) traced(req *http.Request) context.Context {
	if ctx := req.Context(); trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return t.call
}
