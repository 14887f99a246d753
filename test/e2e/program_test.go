package e2e_test

import (
	"fmt"
	"syscall"
	"time"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/world"
)

// program is the worker's own part. The approve tools are gated, each in another form; no agent of the plain manifest has one.
func program(w *world.World) app.Program {
	gated := func(gate any, timeout time.Duration) tools.Options {
		return tools.Options{Effect: schemas.EffectWrite, RequiresApproval: gate, ApprovalTimeout: timeout}
	}
	return app.Program{Version: "e2e", Deps: w, Tools: append(world.Tools(),
		world.Tool("approve_always", gated(true, 0), world.Instant),
		world.Tool("approve_when", gated("args.n > 100", 0), world.Instant),
		world.Tool("approve_func", gated(func(world.Arguments) bool { return false }, 0), world.Instant),
		world.Tool("approve_timeout", gated(nil, time.Minute), world.Instant),
	)}
}

// takeHostName gives this process the host name, if there is one to take: it is in a namespace of its own then.
func takeHostName(name string) error {
	if name == "" {
		return nil
	}
	if err := syscall.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("take the host name %s: %w", name, err)
	}
	return nil
}
