package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lathe-run/lathe/internal/app"
)

func newRun(p app.Program, env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the worker until a signal",
		Long: `Runs the worker. It checks the brokers, the topics, the manifest and the tools, and refuses to start with everything
that is wrong at once: exit status 2 for settings, manifest and tools, 1 for the rest.

SIGTERM or SIGINT drains it: no turn, model request or tool call begins any more, running calls may end within
LATHE_DRAIN_BUDGET, and what is left is resumed by the next worker. A second signal stops it at once, which loses
nothing either. Exit status 0 says that the drain was clean.`,
		Example: `  LATHE_BROKERS=localhost:9092 LATHE_MANIFEST=lathe.yaml worker run`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runWorker(cmd.Context(), p, env)
		},
	}
}

// runWorker runs a worker with the settings of the environment until a signal.
func runWorker(ctx context.Context, p app.Program, env Env) error {
	s, err := loadSettings(ctx, env, true)
	if err != nil {
		return err
	}
	m, err := loadManifest(s, env)
	if err != nil {
		return err
	}
	ctx, stopNow, release := signals(ctx)
	defer release()
	opts := env.Options
	opts.StopNow = stopNow
	return app.Run(ctx, s, m, p, newLogger(s, env), opts)
}

// signals returns a context that ends at the first signal, and a channel that is closed at the second.
func signals(parent context.Context) (ctx context.Context, stopNow <-chan struct{}, release func()) {
	ctx, cancel := context.WithCancel(parent)
	got := make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGTERM, os.Interrupt)
	second, done, watching := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-got:
			cancel()
		case <-done:
			return
		}
		select {
		case <-got:
			close(second)
		case <-done:
		}
	}()
	return ctx, second, func() {
		signal.Stop(got)
		close(done)
		<-watching
		cancel()
	}
}
