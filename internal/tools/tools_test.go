package tools

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type orderArgs struct {
	OrderID string  `json:"order_id" jsonschema:"the order's number"`
	Reason  *string `json:"reason"`
}

type order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

func lookup(_ *Context, in orderArgs) (order, error) { return order{ID: in.OrderID, Total: 12}, nil }

func reads() Options { return Options{Description: "Looks up an order.", Effect: schemas.EffectRead} }

func writes() Options { return Options{Description: "Gives money back.", Effect: schemas.EffectWrite} }

// logBuffer is what a runtime logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRuntime(tb testing.TB, deps Deps) (*Runtime, *logBuffer) {
	tb.Helper()
	logs := &logBuffer{}
	deps.Logger = slog.New(slog.NewTextHandler(logs, nil))
	r, err := New(Config{}, deps)
	if err != nil {
		tb.Fatal(err)
	}
	// Its goroutines end with the test, which may be a bubble.
	tb.Cleanup(func() { _ = r.Close(context.WithoutCancel(tb.Context())) })
	return r, logs
}

// bindAll binds the tools to the agent "support".
func bindAll(tb testing.TB, r *Runtime, a AgentBinding, list ...Tool) *Bound {
	tb.Helper()
	a.Agent, a.Tools = "support", []string{"*"}
	bound, err := r.Bind([]AgentBinding{a}, list, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return bound["support"]
}

func mustPrepare(tb testing.TB, b *Bound, name, arguments string) fact.Call {
	tb.Helper()
	call, result := b.Prepare(fact.Asked{Name: name, CallID: "c1", Arguments: []byte(arguments)}, fact.Ref{Step: 2, Position: 1}, b.Tools())
	if result != nil {
		tb.Fatalf("prepare %s: %s %s", name, result.Code, result.Message)
	}
	return call
}

func invocation() Invocation {
	return Invocation{TurnID: "t1", SessionID: "s1", Scope: &schemas.Scope{PrincipalID: "p", ProjectID: "j"}, Durable: true}
}

func execute(tb testing.TB, ctx context.Context, b *Bound, call fact.Call) fact.Result { //nolint:revive // tb goes first, as everywhere here.
	tb.Helper()
	result, err := b.Execute(ctx, call, invocation())
	if err != nil {
		tb.Fatalf("execute: %v", err)
	}
	return result
}
