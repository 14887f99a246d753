package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lathe-run/lathe/internal/app"
)

// benchFlags are what the command line says about a measurement.
type benchFlags struct {
	brokers    string
	inFlight   []int
	tools      []string
	warm, span time.Duration
	partitions int32
	perSession int
	asJSON     bool
	profile    string
}

// addTo adds the flags that every measurement has.
func (f *benchFlags) addTo(fl *pflag.FlagSet) {
	fl.StringVar(&f.brokers, "brokers", "", "brokers to measure on (default: LATHE_BROKERS, else an embedded one)")
	fl.Int32Var(&f.partitions, "partitions", 12, "partitions of each topic")
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON object a line")
}

func newBench(_ app.Program, env Env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure turns/s, latency, CPU and memory beside the floor",
		Long: `Drives turns of four model responses, the first three asking for one call each, the last the answer (models 500 bytes,
results 300 bytes), in a closed loop: as many turns in flight as said, each counted as done when a read_committed reader
sees its turn:end.

  read    tools that read, instant
  write   tools that change something, at most once, instant: each call's start is durable before it runs
  slow    tools that read, 50 ms; the model takes 500 ms (at the largest number in flight only)

The worker runs as a process of its own, the broker as another. The floor is measured beside each: the same number of
records with the same bytes through the same ring of producers, as many commits one after another as a turn needs, and no
logic at all. Turns name no session unless --per-session says so. Without --brokers the embedded broker is used, which is no measure for a real one.`,
		Example: `  worker bench
  worker bench --brokers localhost:9092 --in-flight 512 --tools write --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, _, release := signals(cmd.Context())
			defer release()
			return runBench(ctx, env, f)
		},
	}
	fl := cmd.Flags()
	f.addTo(fl)
	fl.IntSliceVar(&f.inFlight, "in-flight", []int{1, 64, 512}, "turns in flight")
	fl.StringSliceVar(&f.tools, "tools", []string{benchRead, benchWrite, benchSlow}, "kinds of tools: read, write, slow")
	fl.DurationVar(&f.warm, "warm", 3*time.Second, "time before each measurement")
	fl.DurationVar(&f.span, "time", 8*time.Second, "time of each measurement")
	fl.IntVar(&f.perSession, "per-session", 0, "turns of each session, whose history is kept; 0: turns name no session")
	fl.StringVar(&f.profile, "profile", "", "folder for CPU profiles of the worker")
	cmd.AddCommand(newBenchWorker(env), newBenchFloor(env), newBenchBroker(env), newBenchRestore(env))
	return cmd
}

// benchResult is one row: what users of the JSON form read.
type benchResult struct {
	Brokers         int         `json:"brokers"`
	Tools           string      `json:"tools"`
	InFlight        int         `json:"in_flight"`
	PerSession      int         `json:"per_session"`
	TurnsPerS       float64     `json:"turns_per_s"`
	StepsPerS       float64     `json:"steps_per_s"`
	P50MS           float64     `json:"p50_ms"`
	P99MS           float64     `json:"p99_ms"`
	CPU             benchCPU    `json:"cpu_s_per_1000_turns"`
	PeakMB          float64     `json:"peak_mb"`
	RecordsPerTurn  benchCounts `json:"records_per_turn"`
	BytesPerTurn    float64     `json:"bytes_per_turn"`
	FloorTurnsPerS  float64     `json:"floor_turns_per_s"`
	FloorP50MS      float64     `json:"floor_p50_ms"`
	FloorCycleP50MS float64     `json:"floor_cycle_p50_ms"`
	CyclesPerS      float64     `json:"cycles_per_s"`
	FloorCyclesPerS float64     `json:"floor_cycles_per_s"`
	FloorWorkerCPU  float64     `json:"floor_worker_cpu_s_per_1000_turns"`
}

// benchCPU is CPU seconds per 1,000 turns of each process.
type benchCPU struct {
	Worker float64 `json:"worker"`
	Broker float64 `json:"broker"`
	Driver float64 `json:"driver"`
}

// benchCounts is records per turn: events, and changelog records, tombstones included.
type benchCounts struct {
	Events    float64 `json:"events"`
	Changelog float64 `json:"changelog"`
}

// driverGC is how far the driver's heap, as a percentage of what lives, may grow before it is collected. The driver shares the machine with
// what it measures, and has so little that it would be collected all the time.
const driverGC = 800

func runBench(ctx context.Context, env Env, f benchFlags) error {
	defer debug.SetGCPercent(debug.SetGCPercent(driverGC))
	b, err := openBench(ctx, env, f)
	if err != nil {
		return err
	}
	defer b.close()
	if f.profile != "" {
		if err := os.MkdirAll(f.profile, 0o750); err != nil {
			return fmt.Errorf("make the folder for profiles: %w", err)
		}
	}
	if !f.asJSON {
		printBenchHead(env, b)
	}
	for _, kind := range f.tools {
		for _, n := range f.inFlight {
			if kind == benchSlow && n != slices.Max(f.inFlight) {
				continue
			}
			row, err := b.measure(ctx, kind, n)
			if err != nil {
				return fmt.Errorf("measure %s at %d in flight: %w", kind, n, err)
			}
			if err := printBenchRow(env, f, row); err != nil {
				return err
			}
		}
	}
	return nil
}

func printBenchHead(env Env, b *bench) {
	sessions := "turns name no session"
	if n := b.flags.perSession; n > 0 {
		sessions = fmt.Sprintf("%d turns to a session", n)
	}
	say(env.Stdout, "broker: %s (%d), %d partitions, %s, %s each after %s\n\n", b.what, b.brokers, b.flags.partitions, sessions, b.flags.span, b.flags.warm)
	say(env.Stdout, "%-6s %5s | %8s %8s %8s %8s | %8s %8s %6s | %7s %7s %7s %7s | %6s %6s %8s | %7s\n",
		"tools", "n", "turns/s", "steps/s", "p50 ms", "p99 ms", "floor/s", "p50 ms", "ratio",
		"cpu wrk", "broker", "driver", "peak MB", "events", "clog", "bytes", "cyc/s")
}

func printBenchRow(env Env, f benchFlags, r benchResult) error {
	if f.asJSON {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("write a result: %w", err)
		}
		say(env.Stdout, "%s\n", line)
		return nil
	}
	say(env.Stdout, "%-6s %5d | %8.0f %8.0f %8.2f %8.2f | %8.0f %8.2f %6.2f | %7.3f %7.3f %7.3f %7.0f | %6.2f %6.2f %8.0f | %7.0f\n",
		r.Tools, r.InFlight, r.TurnsPerS, r.StepsPerS, r.P50MS, r.P99MS, r.FloorTurnsPerS, r.FloorP50MS, ratio(r.TurnsPerS, r.FloorTurnsPerS),
		r.CPU.Worker, r.CPU.Broker, r.CPU.Driver, r.PeakMB, r.RecordsPerTurn.Events, r.RecordsPerTurn.Changelog, r.BytesPerTurn, r.CyclesPerS)
	return nil
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// bench is a measurement under way: the brokers, and what counts their CPU time.
type bench struct {
	env     Env
	flags   benchFlags
	addrs   string
	what    string
	brokers int
	pids    []int
	child   *child
	runs    int
	dir     string
}

func openBench(ctx context.Context, env Env, f benchFlags) (b *bench, err error) {
	if f.brokers == "" {
		f.brokers, _ = lookup(env.Environ)("LATHE_BROKERS")
	}
	b = &bench{env: env, flags: f, addrs: f.brokers, what: f.brokers}
	if b.dir, err = os.MkdirTemp("", "lathe-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for the benchmark: %w", err)
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if f.brokers == "" {
		b.what = "embedded"
		if b.child, err = startChild(ctx, env, nil, "bench", "broker"); err != nil {
			return nil, err
		}
		if b.addrs, err = b.child.line(ctx); err != nil {
			return nil, err
		}
		b.pids = []int{b.child.pid()}
	} else if pids, ok := lookup(env.Environ)("LATHE_TEST_BROKER_PIDS"); ok {
		for p := range strings.SplitSeq(pids, ",") {
			n, err := strconv.Atoi(p)
			if err != nil {
				return nil, fmt.Errorf("read LATHE_TEST_BROKER_PIDS: %w", err)
			}
			b.pids = append(b.pids, n)
		}
	}
	b.brokers, err = countBrokers(ctx, b.addrs)
	return b, err
}

func (b *bench) close() {
	if b.child != nil {
		b.child.stop()
	}
	if err := os.RemoveAll(b.dir); err != nil {
		say(b.env.Stderr, "bench: %v\n", err)
	}
}

// measure measures the worker, then the floor with what the worker was seen to write.
func (b *bench) measure(ctx context.Context, kind string, n int) (benchResult, error) {
	b.runs++
	r := benchResult{Brokers: b.brokers, Tools: kind, InFlight: n, PerSession: b.flags.perSession}
	w, err := b.run(ctx, runSpec{kind: kind, inFlight: n, name: fmt.Sprintf("b%d-%d-w.", os.Getpid(), b.runs)})
	if err != nil {
		return r, err
	}
	r.TurnsPerS, r.StepsPerS, r.P50MS, r.P99MS = w.rate(), 4*w.rate(), w.quantile(.5), w.quantile(.99)
	r.CPU = benchCPU{Worker: w.perThousand(w.workerCPU), Broker: w.perThousand(w.brokerCPU), Driver: w.perThousand(w.driverCPU)}
	r.PeakMB, r.CyclesPerS = w.peakMB, w.cycles/w.span.Seconds()
	r.RecordsPerTurn, r.BytesPerTurn = w.shape.counts(), w.shape.bytes()
	fl, err := b.run(ctx, runSpec{kind: kind, inFlight: n, name: fmt.Sprintf("b%d-%d-f.", os.Getpid(), b.runs), floor: &w.shape})
	if err != nil {
		return r, fmt.Errorf("the floor: %w", err)
	}
	r.FloorTurnsPerS, r.FloorP50MS, r.FloorWorkerCPU = fl.rate(), fl.quantile(.5), fl.perThousand(fl.workerCPU)
	r.FloorCyclesPerS, r.FloorCycleP50MS = fl.cycles/fl.span.Seconds(), fl.cycleP50MS
	if kind == benchSlow {
		// The floor has no slow model to wait for; what a closed loop could do at best is in flight over the waits.
		r.FloorTurnsPerS = float64(n) / slowTurn.Seconds()
	}
	return r, nil
}

// errChildEnded says that a process which the benchmark needs has ended.
var errChildEnded = errors.New("a process of the benchmark ended before it should")
