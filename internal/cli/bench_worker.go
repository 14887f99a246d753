package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/llm"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

// The kinds of tools that are measured.
const (
	benchRead  = "read"
	benchWrite = "write"
	benchSlow  = "slow"
)

const (
	benchModelDelay = 500 * time.Millisecond
	benchToolDelay  = 50 * time.Millisecond
	// slowTurn is how long a turn with slow tools takes at least.
	slowTurn        = 4*benchModelDelay + 3*benchToolDelay
	benchModelBytes = 500
	benchToolBytes  = 300
)

type benchInput struct {
	Query string `json:"query" jsonschema:"what to look for"`
}

type benchOutput struct {
	Found string `json:"found"`
}

// benchTools are one tool of each kind; what they answer has 300 bytes.
func benchTools() []tools.Tool {
	tool := func(name string, effect schemas.Effect, delay time.Duration) tools.Tool {
		return tools.Define(name, func(c *tools.Context, _ benchInput) (benchOutput, error) {
			if delay == 0 {
				return benchAnswer(c), nil
			}
			t := time.NewTimer(delay)
			defer t.Stop()
			select {
			case <-t.C:
				return benchAnswer(c), nil
			case <-c.Done():
				return benchOutput{}, c.Err()
			}
		}, tools.Options{Description: "Answers with 300 bytes.", Effect: effect})
	}
	return []tools.Tool{
		tool(benchRead, schemas.EffectRead, 0), tool(benchWrite, schemas.EffectWrite, 0), tool(benchSlow, schemas.EffectRead, benchToolDelay),
	}
}

func benchAnswer(c *tools.Context) benchOutput {
	return benchOutput{llm.Filler(c.IdempotencyKey(), benchToolBytes-len(`{"found":""}`))}
}

// benchScript is a model that asks for one call in each of three responses and answers in the fourth.
func benchScript(kind string) string {
	delay := ""
	if kind == benchSlow {
		delay = "        delay: " + benchModelDelay.String() + "\n"
	}
	step := fmt.Sprintf("      - text: 'I look. '\n        pad: %d\n        calls: [{name: %s, arguments: {query: a question}}]\n%s", benchModelBytes, kind, delay)
	last := fmt.Sprintf("      - text: 'There it is. '\n        pad: %d\n%s", benchModelBytes, delay)
	return "version: 1\nscenarios:\n  - steps:\n" + strings.Repeat(step, 3) + last
}

func benchManifest(kind string) string {
	return fmt.Sprintf("version: 1\nagents:\n  bench: {model: main, system: You answer., tools: [%s]}\nmodels:\n  main: {provider: scripted, model: bench, script: script.yaml}\n", kind)
}

// writeBenchFiles writes manifest and script of a kind into a folder.
func writeBenchFiles(dir, kind string) error {
	for name, text := range map[string]string{"lathe.yaml": benchManifest(kind), "script.yaml": benchScript(kind)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the benchmark's files: %w", err)
		}
	}
	return nil
}

// newBenchWorker is the worker process that is measured: a worker as users run it, with the benchmark's tools. With an
// argument it writes a CPU profile there.
func newBenchWorker(env Env) *cobra.Command {
	return &cobra.Command{
		Use: "worker", Hidden: true, Args: cobra.MaximumNArgs(1), Short: "The worker that is measured",
		RunE: func(cmd *cobra.Command, args []string) error {
			stop, err := profile(args)
			if err != nil {
				return err
			}
			defer stop()
			return runWorker(cmd.Context(), app.Program{Tools: benchTools(), Version: "bench"}, env)
		},
	}
}

func profile(args []string) (stop func(), err error) {
	if len(args) == 0 {
		return func() {}, nil
	}
	f, err := os.Create(args[0])
	if err != nil {
		return nil, fmt.Errorf("write a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("write a profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			say(os.Stderr, "bench: write a profile: %v\n", err)
		}
	}, nil
}

// newBenchBroker is an embedded broker in a process of its own, so that its CPU time can be told from the driver's.
func newBenchBroker(env Env) *cobra.Command {
	return &cobra.Command{
		Use: "broker", Hidden: true, Args: cobra.NoArgs, Short: "The embedded broker",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, _, release := signals(cmd.Context())
			defer release()
			c, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				return fmt.Errorf("start the embedded broker: %w", err)
			}
			defer c.Close()
			say(env.Stdout, "%s\n", strings.Join(c.ListenAddrs(), ","))
			<-ctx.Done()
			return nil
		},
	}
}

// workerEnviron is the environment of a measured worker: defaults in everything but where it is.
func (b *bench) workerEnviron(spec runSpec, dir string) []string {
	return []string{
		"LATHE_BROKERS=" + b.addrs, "LATHE_APP=" + strings.TrimSuffix(spec.name, "."), "LATHE_TOPIC_PREFIX=" + spec.name, "LATHE_INSTANCE_ID=bench-0",
		"LATHE_MANIFEST=" + filepath.Join(dir, "lathe.yaml"), "LATHE_DATA_DIR=" + filepath.Join(dir, "data"),
		"LATHE_ADMIN_ADDR=" + spec.admin, "LATHE_LOG_LEVEL=error", "LATHE_ALLOW_SINGLE_REPLICA=true",
	}
}

// settings are a run's settings, as the worker reads them.
func (b *bench) settings(ctx context.Context, spec runSpec, dir string) (*app.Settings, error) {
	return app.LoadSettings(ctx, b.workerEnviron(spec, dir), os.ReadFile)
}
