package tools

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// Invocation is what a turn says about a call that is about to run.
type Invocation struct {
	TurnID    string
	SessionID string
	Scope     *schemas.Scope
	// Durable says that the start of the call was committed, so that its idempotency key stands for these arguments.
	Durable bool
	// EmitStatus takes what the tool says about its progress; nil drops it.
	EmitStatus func(text string)
}

// Context is what a tool knows about its call, and the context that ends when the call is given up. Its methods are safe for
// concurrent use.
type Context struct {
	context.Context //nolint:containedctx // It is a context: tools pass it on as such.

	runtime *Runtime
	call    *fact.Call
	inv     *Invocation
	attempt int
}

// TurnID is the id of the turn that the call belongs to.
func (c *Context) TurnID() string { return c.inv.TurnID }

// SessionID is the id of the turn's session.
func (c *Context) SessionID() string { return c.inv.SessionID }

// CallID is the id that the model's provider gave the call, for correlation only.
func (c *Context) CallID() string { return c.call.CallID }

// IdempotencyKey names the call: the same after every retry, resume and redelivery.
func (c *Context) IdempotencyKey() string { return c.call.Key(c.inv.TurnID) }

// Attempt counts the attempts of the call in this process, from 1.
func (c *Context) Attempt() int { return c.attempt }

// PrincipalID says who asks, empty if the turn does not say.
func (c *Context) PrincipalID() string {
	if c.inv.Scope == nil {
		return ""
	}
	return c.inv.Scope.PrincipalID
}

// ProjectID says for which project, empty if the turn does not say.
func (c *Context) ProjectID() string {
	if c.inv.Scope == nil {
		return ""
	}
	return c.inv.Scope.ProjectID
}

// Deps is what the program wired for its tools, as it was given; From returns it with its type.
func (c *Context) Deps() any { return c.runtime.deps.Program }

// From returns what the program wired for its tools. A wrong type is a mistake of the program, so it panics.
func From[T any](c *Context) T {
	deps, ok := c.Deps().(T)
	if !ok {
		panic(fmt.Sprintf("tools were wired with %T, not %T", c.Deps(), deps))
	}
	return deps
}

// Logger logs with the tool, the turn and the key of the call.
func (c *Context) Logger() *slog.Logger { return c.runtime.logger(c.call, c.inv) }

// EmitStatus tells who watches the turn how the call is getting on. Best effort: it may be lost, and is never repeated.
func (c *Context) EmitStatus(text string) {
	if c.inv.EmitStatus != nil && c.Err() == nil {
		c.inv.EmitStatus(text)
	}
}

// HTTP returns a client that carries the trace and, if the call was committed before it ran, its idempotency key in the header
// Idempotency-Key. For a call that may run at most once it never sends a request again by itself. Its requests end when the
// attempt does.
func (c *Context) HTTP() *http.Client {
	client := c.runtime.clients.forCall(c)
	if deadline, ok := c.Deadline(); ok {
		client.Timeout = max(time.Until(deadline), time.Nanosecond)
	}
	return client
}

func (r *Runtime) logger(call *fact.Call, inv *Invocation) *slog.Logger {
	return r.deps.Logger.With(
		slog.String("tool", call.Tool.Name),
		slog.String("turn_id", inv.TurnID),
		slog.String("idempotency_key", call.Key(inv.TurnID)),
	)
}
