// Package worker is the worker that is tortured: the product's run command with the tools of the tests, traps at the steps of the
// commit cycle, and switches by which the torturer moves its clock and fills its disk. Built with one of the sabotage_ tags it
// breaks one promise, so that a test can show that the oracle sees it.
package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/cli"
	"github.com/lathe-run/lathe/test/internal/trap"
	"github.com/lathe-run/lathe/test/internal/world"
)

// Environment of the worker; the settings take LATHE_TEST_ names as not theirs.
const (
	// EnvDir is the folder with the ledger.
	EnvDir = "LATHE_TEST_DIR"
	// EnvSwitches is the folder of the switches, see the Switch names.
	EnvSwitches = "LATHE_TEST_SWITCHES"
)

// Main runs the worker and returns its exit status.
func Main(ctx context.Context, args []string) int {
	env := cli.OSEnv()
	program, err := prepare(&env)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	ctx, stop := context.WithCancel(ctx)
	s := newSwitches(os.Getenv(EnvSwitches))
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		s.watch(ctx)
	}()
	env.Options.Now, env.Options.Store = s.now, s.store
	sabotage(&env.Options, &program)
	code := cli.Main(ctx, args, program, env)
	stop()
	<-watching
	return exitCode(code)
}

func prepare(env *cli.Env) (app.Program, error) {
	hooks, err := trap.Hooks(os.Getenv(trap.Env))
	if err != nil {
		return app.Program{}, err
	}
	env.Options.Hooks = hooks
	w, err := world.Open(os.Getenv(EnvDir))
	return app.Program{Version: "torture", Deps: w, Tools: world.Tools()}, err
}

// SwitchDir is the folder of a worker's switches within a folder of all.
func SwitchDir(dir, name string) string { return filepath.Join(dir, "switches-"+name) }
