// Package llm hides the model providers: how a request of ours becomes theirs, how their answer becomes a response, and
// which of their failures may pass and are tried again.
//
// Errors are *schemas.Error, of class terminal or, when the trouble may pass but time or attempts ran out, retryable. Their
// messages hold neither secrets nor what was said. A context that ended gives its cause, as it is.
package llm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// The providers.
const (
	ProviderOpenAI    = "openai"
	ProviderAnthropic = "anthropic"
	ProviderScripted  = "scripted"
)

// StrictSchemas reports whether a provider takes only tool schemas in which every property is required and no other is
// allowed.
func StrictSchemas(provider string) bool { return provider != ProviderScripted }

// Deps are what a Router is given.
type Deps struct {
	// Logger tells of requests that are made again; nil discards.
	Logger *slog.Logger
	// Transport carries the requests of all models, for tracing and tests; nil is one of our own per model.
	Transport http.RoundTripper
	// Meter may be nil: no metrics.
	Meter metric.Meter
	// Retried is told of each request that is made again; nil is nobody.
	Retried func(ctx context.Context)

	private struct {
		// jitter returns the part in [0,1) of a random wait.
		jitter func() float64
	}
}

func (d Deps) withDefaults() Deps {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Retried == nil {
		d.Retried = func(context.Context) {}
	}
	if d.private.jitter == nil {
		d.private.jitter = rand.Float64
	}
	return d
}

// Router sends each request to the model it names. It is safe for concurrent use.
type Router struct {
	models  map[string]*model
	deps    Deps
	metrics *metrics
}

// model is one entry of the manifest and what bounds its use.
type model struct {
	cfg      Config
	spec     fact.ModelSpec
	provider provider
	// places holds a token for each request that is under way; nil when their number is unbounded.
	places chan struct{}
	client *http.Client
	// breaker is nil for a scripted model, which is never down: what it says depends on the request alone.
	breaker *breaker
}

// provider speaks to one model service.
type provider interface {
	// prepare builds what every attempt of a request sends.
	prepare(req *fact.Request) (send, error)
}

// send makes one attempt, counted from 0. Its error is a *schemas.Error unless ctx ended.
type send func(ctx context.Context, attempt int) (*fact.Response, error)

// New returns a router over the models, or an error that holds every fault of their configuration.
func New(models []Config, deps Deps) (*Router, error) {
	deps = deps.withDefaults()
	r := &Router{models: make(map[string]*model, len(models)), deps: deps}
	var faults []error
	var err error
	if r.metrics, err = newMetrics(deps.Meter, r); err != nil {
		return nil, err
	}
	for _, cfg := range models {
		cfg = cfg.withDefaults()
		if _, ok := r.models[cfg.Name]; ok {
			faults = append(faults, cfg.fault("name", "is there twice; give each model its own"))
			continue
		}
		m, err := newModel(cfg, deps, r.metrics)
		if err != nil {
			faults = append(faults, err)
		}
		r.models[cfg.Name] = m
	}
	if err := errors.Join(faults...); err != nil {
		return nil, errors.Join(err, r.metrics.close())
	}
	return r, nil
}

func newModel(cfg Config, deps Deps, metrics *metrics) (*model, error) {
	faults := cfg.validate()
	m := &model{cfg: cfg}
	if cfg.Provider != ProviderScripted {
		m.breaker = newBreaker(cfg, deps, metrics)
	}
	if cfg.Concurrency > 0 {
		m.places = make(chan struct{}, cfg.Concurrency)
	}
	switch cfg.Provider {
	case ProviderOpenAI:
		m.client = newClient(cfg, deps.Transport)
		m.provider = newOpenAI(cfg, m.client)
	case ProviderAnthropic:
		m.client = newClient(cfg, deps.Transport)
		m.provider = newAnthropic(cfg, m.client)
	case ProviderScripted:
		script, err := cfg.script()
		if err != nil {
			faults = append(faults, err)
		}
		m.provider = script
	}
	params, err := cfg.Params.canonical()
	if err != nil {
		faults = append(faults, cfg.fault("params", err.Error()))
	}
	m.spec = fact.ModelSpec{Name: cfg.Name, Provider: cfg.Provider, Model: cfg.Model, Params: params}
	return m, errors.Join(faults...)
}

// Spec returns what a turn records of a model when it is accepted.
func (r *Router) Spec(name string) (fact.ModelSpec, bool) {
	m, ok := r.models[name]
	if !ok {
		return fact.ModelSpec{}, false
	}
	return m.spec, true
}

// Respond asks the model that req names. It makes the request again when that may help and ctx leaves the time, and waits while
// the model is down. It returns ErrDraining instead of waiting on when req.Draining is closed. The response's duration counts
// from here, waits included.
func (r *Router) Respond(ctx context.Context, req *fact.Request) (*fact.Response, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m, ok := r.models[req.Spec.Name]
	if !ok {
		return nil, schemas.Errorf(schemas.CodeModelUnavailable,
			"the manifest has no model %q, which the turn was accepted with: put it back until such turns have ended", req.Spec.Name)
	}
	if req.Spec.Provider != "" && req.Spec.Provider != m.cfg.Provider {
		return nil, schemas.Errorf(schemas.CodeModelUnavailable,
			"the model %q is of provider %s now, but the turn was accepted with %s: give the new one another name",
			req.Spec.Name, m.cfg.Provider, req.Spec.Provider)
	}
	start := time.Now()
	attempt, err := m.provider.prepare(req)
	if err != nil {
		return nil, classified(err)
	}
	m.breaker.enter()
	defer m.breaker.leave()
	resp, err := r.retry(ctx, m, req, attempt)
	if err != nil {
		return nil, err
	}
	resp.Step = req.Step
	resp.Provider = m.cfg.Provider
	if resp.Model == "" {
		resp.Model = requestModel(req, m.cfg)
	}
	if resp.CostMicros == nil {
		resp.CostMicros = m.cfg.Price.cost(resp.Usage)
	}
	resp.Duration = time.Since(start)
	return resp, nil
}

// Close lets go of idle connections and of the metrics.
func (r *Router) Close() error {
	for _, m := range r.models {
		if m.client != nil {
			m.client.CloseIdleConnections()
		}
	}
	return r.metrics.close()
}

// requestModel is the provider's name of the model: the recorded one, so that a deployment does not change turns under way.
func requestModel(req *fact.Request, cfg Config) string {
	if req.Spec.Model != "" {
		return req.Spec.Model
	}
	return cfg.Model
}

// classified makes sure that an error which leaves the package says what to do about it.
func classified(err error) error {
	if _, ok := errors.AsType[*schemas.Error](err); ok {
		return err
	}
	return &schemas.Error{
		Code: schemas.CodeModelUnavailable, Message: "the request could not be made", Err: fmt.Errorf("ask the model: %w", err),
	}
}
