package tools

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/propagation"

	"github.com/lathe-run/lathe/internal/spare"
)

// Config bounds what tools may take and give.
type Config struct {
	// MaxInputBytes bounds the arguments of one call: 512 KiB by default.
	MaxInputBytes int
	// MaxResultBytes bounds the results of tools that set no limit of their own: 512 KiB by default.
	MaxResultBytes int
	// MaxRecordBytes is what one output record can hold; no tool may give larger results. 1 MiB by default.
	MaxRecordBytes int
	// MaxDepth bounds how deep the JSON of arguments and results may nest: 64 by default.
	MaxDepth int
}

func (c Config) withDefaults() Config {
	if c.MaxDepth == 0 {
		c.MaxDepth = maxDepth
	}
	if c.MaxInputBytes == 0 {
		c.MaxInputBytes = 512 << 10
	}
	if c.MaxResultBytes == 0 {
		c.MaxResultBytes = defaultMaxResultBytes
	}
	if c.MaxRecordBytes == 0 {
		c.MaxRecordBytes = 1 << 20
	}
	return c
}

func (c Config) validate() error {
	var faults []error
	if c.MaxInputBytes < 0 {
		faults = append(faults, fmt.Errorf("MaxInputBytes is %d", c.MaxInputBytes))
	}
	if c.MaxResultBytes < 0 {
		faults = append(faults, fmt.Errorf("MaxResultBytes is %d", c.MaxResultBytes))
	}
	if c.MaxRecordBytes < 0 {
		faults = append(faults, fmt.Errorf("MaxRecordBytes is %d", c.MaxRecordBytes))
	}
	if c.MaxDepth < 0 {
		faults = append(faults, fmt.Errorf("MaxDepth is %d", c.MaxDepth))
	}
	return errors.Join(faults...)
}

// Deps are what the tools run with.
type Deps struct {
	// Logger is required; the raw text of a tool's errors goes there and nowhere else.
	Logger *slog.Logger
	// Program is what the program wired for its tools; see From.
	Program any
	// Transport is what the HTTP clients of tools are made from: http.DefaultTransport's settings by default.
	Transport *http.Transport
	// Propagator puts the trace context into requests: W3C by default.
	Propagator propagation.TextMapPropagator
	// Rand gives a number in [0, 1) for the jitter of retries. It is called concurrently.
	Rand func() float64
	// Retried is told of each call that is tried again; nil is nobody.
	Retried func(ctx context.Context)
}

// keepGoroutines is how many goroutines wait for a call of a tool at most: enough for what instant tools need at a time.
const keepGoroutines = 64

// Runtime is what all bound tools of a process share: their clients, and the goroutines of calls under way. It is safe for
// concurrent use.
type Runtime struct {
	cfg     Config
	deps    Deps
	clients *clients
	calls   tracker
	// goroutines run the code of tools.
	goroutines spare.Goroutines
	timers     spare.Timers
	signals    signals
}

// New returns a Runtime. Close it when no turn runs any more.
func New(cfg Config, deps Deps) (*Runtime, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configure tools: %w", err)
	}
	if deps.Logger == nil {
		return nil, errors.New("configure tools: no logger")
	}
	if deps.Propagator == nil {
		deps.Propagator = propagation.TraceContext{}
	}
	if deps.Rand == nil {
		deps.Rand = rand.Float64
	}
	if deps.Retried == nil {
		deps.Retried = func(context.Context) {}
	}
	return &Runtime{cfg: cfg, deps: deps, clients: newClients(deps.Transport, deps.Propagator), goroutines: spare.Goroutines{Keep: keepGoroutines}}, nil
}

// Close refuses new calls and waits until the code of all tools has returned, that of calls which were given up included. It
// gives up when ctx ends, and says how many are left.
func (r *Runtime) Close(ctx context.Context) error {
	defer r.clients.close()
	idle := r.calls.close()
	r.goroutines.Close()
	select {
	case <-idle:
		r.goroutines.Wait()
		return nil
	case <-ctx.Done():
		select {
		case <-idle:
			return nil
		default:
		}
		return fmt.Errorf("wait for %d calls that do not return: %w", r.calls.count(), context.Cause(ctx))
	}
}

// signals are channels that take one signal each, and that nobody uses right now.
type signals struct{ pool sync.Pool }

func (s *signals) get() chan struct{} {
	if c, ok := s.pool.Get().(chan struct{}); ok {
		return c
	}
	return make(chan struct{}, 1)
}

// put takes a channel back whose signal was received. Another may still come on one whose signal was not.
func (s *signals) put(c chan struct{}) { s.pool.Put(c) }

// tracker counts goroutines and says when the last one is gone. A WaitGroup would not do: its wait cannot be given up.
type tracker struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{}
}

// enter reports false after close.
func (t *tracker) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.n++
	return true
}

func (t *tracker) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.closed && t.n == 0 {
		close(t.idle)
	}
}

// close returns a channel that is closed when the last goroutine has left. It may be called again.
func (t *tracker) close() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		t.idle = make(chan struct{})
		if t.n == 0 {
			close(t.idle)
		}
	}
	return t.idle
}

func (t *tracker) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}
