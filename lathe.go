// Package lathe builds a worker with tools of your own, in Go.
//
//	type lookupInput struct {
//		OrderID string `json:"order_id" jsonschema:"the order's number"`
//	}
//
//	func lookup(c *lathe.Context, in lookupInput) (Order, error) { ... }
//
//	func main() {
//		lathe.Main(lathe.Program{Tools: []lathe.Tool{
//			lathe.Define("lookup_order", lookup, lathe.ToolOptions{Description: "Looks up an order.", Effect: lathe.Read}),
//		}})
//	}
//
// The program has every command of the worker: run, check, submit, tail, tools, demo. The manifest (lathe.yaml) says which
// agents it runs and which of the tools they have; settings are LATHE_ environment variables.
package lathe

import (
	"context"
	"os"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/cli"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

// Program is a worker's own part: its tools and what they need.
type Program = app.Program

// Tool is a tool that a program defined; make one with Define.
type Tool = tools.Tool

// Context is what a tool knows about its call. It is a context.Context that ends when the call is given up.
type Context = tools.Context

// ToolOptions say how a tool behaves. Description and Effect are required.
type ToolOptions = tools.Options

// Retry is a retry policy of a tool that is safe to retry.
type Retry = tools.Retry

// Effect is what a tool may do to the world outside.
type Effect = schemas.Effect

// The effects of a tool.
const (
	None  = schemas.EffectNone
	Read  = schemas.EffectRead
	Write = schemas.EffectWrite
	Host  = schemas.EffectHost
)

// Idempotency says whether a call of unknown outcome may run again under its key.
type Idempotency = schemas.Idempotency

// The idempotencies.
const (
	SafeToRetry = schemas.SafeToRetry
	AtMostOnce  = schemas.AtMostOnce
)

// Define makes a tool of a Go function. The schema of its arguments follows from In, a struct: every field is required, a
// pointer may be null, no other keys are taken. What is wrong with a tool is reported when the worker starts, for all tools
// at once.
func Define[In, Out any](name string, run func(c *Context, in In) (Out, error), opts ToolOptions) Tool {
	return tools.Define(name, run, opts)
}

// Deps returns what the program wired as Program.Deps. It panics when that is of another type, which ends the call with an
// error.
func Deps[T any](c *Context) T { return tools.From[T](c) }

// Fatal marks an error that no retry can mend.
func Fatal(err error) error { return tools.Fatal(err) }

// Poison marks an error that the arguments cause: no retry, and the model is told to change them.
func Poison(err error) error { return tools.Poison(err) }

// Refusal says no, before anything happened; the reason goes to the model.
func Refusal(reason string) error { return tools.Refusal(reason) }

// NotExecuted says of a failed call that certainly nothing was changed.
func NotExecuted(err error) error { return tools.NotExecuted(err) }

// Safe marks the text of an error as fit for the model and for events. Without it they get a code and a general message.
func Safe(err error) error { return tools.Safe(err) }

// Retries is the policy that tries again n times without waiting.
func Retries(n int) Retry { return tools.Retries(n) }

// Main runs the command that the arguments name and exits with its status.
func Main(p Program) {
	os.Exit(cli.Main(context.Background(), os.Args[1:], p, cli.OSEnv()))
}
