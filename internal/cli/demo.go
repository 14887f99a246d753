package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

//go:embed demodata
var demoFiles embed.FS

// demoTime bounds the whole demo; it takes about ten seconds.
const demoTime = 90 * time.Second

func newDemo(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See every promise kept, on a broker of its own, with a worker killed during a refund",
		Long: `Starts a broker inside this process and a worker as a process of its own: a shop's support agent with three tools (an
order lookup, a refund and a mail, kept in a small database on disk) and a scripted model. It sends a dozen and more
records, prints the events as they come, kills the worker with SIGKILL while a refund is on its way, starts it again,
and ends with a table of what was promised and what was seen.

It needs nothing but this program, keeps nothing, and ends with exit status 1 if a promise was not held.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, _, release := signals(cmd.Context())
			defer release()
			ctx, cancel := context.WithTimeoutCause(ctx, demoTime, fmt.Errorf("the demo did not end within %s", demoTime))
			defer cancel()
			return runDemo(ctx, env)
		},
	}
	cmd.AddCommand(newDemoWorker(env))
	return cmd
}

// newDemoWorker is the demo's worker process.
func newDemoWorker(env Env) *cobra.Command {
	return &cobra.Command{
		Use: "worker <database>", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "The worker that the demo starts, and kills",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := openShop(args[0])
			if err != nil {
				return err
			}
			s.careless = env.Careless
			return errors.Join(runWorker(cmd.Context(), app.Program{Tools: demoTools(), Deps: s, Version: "demo"}, env), s.close())
		},
	}
}

// demo is a demo under way.
type demo struct {
	env      Env
	dir      string
	brokers  string
	settings *app.Settings
	worker   *exec.Cmd
	out      io.Writer
}

func runDemo(ctx context.Context, env Env) error {
	began := time.Now()
	e, err := playDemo(ctx, env)
	if err != nil {
		return err
	}
	if !printPromises(env.Stdout, e.promises()) {
		return errors.New("a promise was not held")
	}
	say(env.Stdout, "\nAll held, in %.1f s. Next: `worker help run`, or the README's \"Against my Kafka\".\n", time.Since(began).Seconds())
	return nil
}

// playDemo plays the demo on a broker of its own and returns the evidence.
func playDemo(ctx context.Context, env Env) (e evidence, err error) {
	d := &demo{env: env, out: env.Stdout}
	if d.dir, err = os.MkdirTemp("", "lathe-demo-"); err != nil {
		return e, fmt.Errorf("make a folder for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "lathe.turns"), kfake.DefaultNumPartitions(4), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		return e, fmt.Errorf("start the embedded broker: %w", err)
	}
	defer broker.Close()
	d.brokers = strings.Join(broker.ListenAddrs(), ",")
	say(d.out, "broker   embedded, on %s\n", d.brokers)
	if err := d.prepare(ctx); err != nil {
		return e, err
	}
	if e, err = d.play(ctx); err != nil {
		return e, errors.Join(err, d.kill())
	}
	e.refusal = bindGated()
	return e, nil
}

// prepare writes the demo's files and makes the settings that demo and worker share.
func (d *demo) prepare(ctx context.Context) error {
	for _, name := range []string{"lathe.yaml", "script.yaml"} {
		b, err := demoFiles.ReadFile("demodata/" + name)
		if err != nil {
			return fmt.Errorf("read the demo's files: %w", err)
		}
		if err := os.WriteFile(filepath.Join(d.dir, name), b, 0o600); err != nil {
			return fmt.Errorf("write the demo's files: %w", err)
		}
	}
	s, err := app.LoadSettings(ctx, d.environ(), os.ReadFile)
	d.settings = s
	return err
}

// environ is the environment of the worker: this process's without its LATHE_ settings, and the demo's own.
func (d *demo) environ() []string {
	return append(withoutSettings(d.env.Environ),
		"LATHE_BROKERS="+d.brokers, "LATHE_APP=demo", "LATHE_INSTANCE_ID=demo-0", "LATHE_MANIFEST="+filepath.Join(d.dir, "lathe.yaml"),
		"LATHE_DATA_DIR="+filepath.Join(d.dir, "data"), "LATHE_ADMIN_ADDR=127.0.0.1:0", "LATHE_LOG_LEVEL=error", "LATHE_DRAIN_BUDGET=5s",
	)
}

// start starts the worker process.
func (d *demo) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "demo", "worker", filepath.Join(d.dir, "shop.db")) //nolint:gosec // It is this program.
	cmd.Env, cmd.Stdout, cmd.Stderr = d.environ(), d.env.Stderr, d.env.Stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	d.worker = cmd
	say(d.out, "worker   process %d\n", cmd.Process.Pid)
	return nil
}

// kill ends the worker with SIGKILL: nothing of it gets to run any more.
func (d *demo) kill() error {
	if d.worker == nil || d.worker.ProcessState != nil {
		return nil
	}
	if err := d.worker.Process.Kill(); err != nil {
		return fmt.Errorf("kill the worker: %w", err)
	}
	if err := d.worker.Wait(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			return fmt.Errorf("wait for the killed worker: %w", err)
		}
	}
	return nil
}

// play sends the turns, follows them to their ends, kills and restarts the worker on the way, and gathers the evidence.
func (d *demo) play(ctx context.Context) (evidence, error) {
	var e evidence
	if err := d.start(ctx); err != nil {
		return e, err
	}
	r, err := d.open(ctx)
	if err != nil {
		return e, err
	}
	defer r.close()
	say(d.out, "sending  %d records\n\n", len(demoTurns()))
	if err := sendDemo(ctx, d.settings); err != nil {
		return e, err
	}
	if err := d.follow(ctx, r, &e); err != nil {
		return e, err
	}
	if err := d.drain(); err != nil {
		return e, err
	}
	return e, d.gather(ctx, r, &e)
}

// open opens a reader as soon as the worker has made the topics.
func (d *demo) open(ctx context.Context) (r *reader, err error) {
	err = until(ctx, func() (err error) {
		r, err = openReader(ctx, d.settings, nil, readerOptions{status: true})
		return err
	})
	return r, err
}

// follow prints events until every turn has ended, and kills the worker when the refund of the killed turn is on its way.
func (d *demo) follow(ctx context.Context, r *reader, e *evidence) error {
	open := make(map[string]bool)
	for _, t := range demoTurns() {
		if t.status != "" {
			open[t.event.TurnID] = true
		}
	}
	p, paying := newPrinter(d.out, false), false
	for len(open) > 0 {
		events, err := r.next(ctx, nil)
		if err != nil {
			return fmt.Errorf("%w; not ended: %v", err, slices.Sorted(maps.Keys(open)))
		}
		for _, ev := range events {
			p.print(ev)
			if ev.Status == nil {
				e.events = append(e.events, ev)
			}
			paying = paying || ev.Status != nil && ev.env.TurnID == killedTurn
			if ev.env.Type == schemas.TypeTurnEnd {
				delete(open, ev.env.TurnID)
			}
		}
		// The other refund has ended by then, so that only one call is in doubt, whatever the machine's speed.
		if paying && !open["demo-refund"] && !e.killed {
			if err := d.killAndRestart(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *demo) killAndRestart(ctx context.Context, e *evidence) error {
	e.killed = true
	say(d.out, "\n*** SIGKILL to the worker, process %d, in the middle of the refund ***\n", d.worker.Process.Pid)
	if err := d.kill(); err != nil {
		return err
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	say(d.out, "\n")
	return nil
}

// drain stops the worker as Kubernetes would, and expects exit status 0.
func (d *demo) drain() error {
	if err := d.worker.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("stop the worker: %w", err)
	}
	if err := d.worker.Wait(); err != nil {
		return fmt.Errorf("the worker did not drain cleanly: %w", err)
	}
	return nil
}

// quiet is how long nothing may come any more before the demo believes that it has seen everything.
const quiet = 700 * time.Millisecond

// gather reads what is left: events that should not be there would come now, and the dead letters and the shop's books.
func (d *demo) gather(ctx context.Context, r *reader, e *evidence) error {
	rest, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	for {
		events, err := r.next(rest, nil)
		if err != nil {
			break // The quiet time is over.
		}
		e.events = append(e.events, events...)
	}
	if err := d.readDeadLetters(ctx, e); err != nil {
		return err
	}
	s, err := openShop(filepath.Join(d.dir, "shop.db"))
	if err != nil {
		return err
	}
	e.ledger, err = s.ledger()
	return errors.Join(err, s.close())
}

func (d *demo) readDeadLetters(ctx context.Context, e *evidence) error {
	from, err := offsets(ctx, d.settings, false, []string{d.settings.Topics().DLQ})
	if err != nil {
		return err
	}
	cl, err := clientConfig(d.settings).NewClient(kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer cl.Close()
	e.dead = make(map[string]int)
	rest, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	for rest.Err() == nil {
		cl.PollFetches(rest).EachRecord(func(rec *kgo.Record) {
			for _, h := range rec.Headers {
				if h.Key == "lathe_reason" {
					e.dead[string(h.Value)]++
				}
			}
		})
	}
	return nil
}

// bindGated tries to bind an agent to a tool that waits for approval, and returns the refusal.
func bindGated() error {
	gated := tools.Define("wire_transfer", func(*tools.Context, refundInput) (string, error) { return "", errors.New("it must never run") },
		tools.Options{Description: "Wires money.", Effect: schemas.EffectWrite, RequiresApproval: true})
	runtime, err := tools.New(tools.Config{}, tools.Deps{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil //nolint:nilerr // The table then says that the tool was not refused.
	}
	_, err = runtime.Bind([]tools.AgentBinding{{Agent: "treasury", Tools: []string{"wire_transfer"}}}, []tools.Tool{gated}, nil)
	return err
}
