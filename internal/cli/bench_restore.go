package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
)

// restoreFlags are what the command line says about a measurement of restoring.
type restoreFlags struct {
	benchFlags

	turns int
}

func newBenchRestore(env Env) *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Measure how fast a worker restores its state, beside reading with no logic",
		Long: `Runs turns like those of "worker bench", several to a session, stops the worker, and starts it again without its disk: it
reads the whole changelog into its state. Beside it, in the same run, the floor: the same records read by a plain
read_committed consumer that only counts them. Then the worker is killed and started again with its disk.`,
		Example: `  worker bench restore --turns 20000 --brokers localhost:9092`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, _, release := signals(cmd.Context())
			defer release()
			return runBenchRestore(ctx, env, f)
		},
	}
	fl := cmd.Flags()
	f.addTo(fl)
	fl.IntVar(&f.turns, "turns", 20_000, "turns that make the state")
	fl.IntVar(&f.perSession, "per-session", 10, "turns of each session")
	fl.StringSliceVar(&f.tools, "tools", []string{benchWrite}, "kinds of tools: read, write")
	return cmd
}

// restoreResult is one row: what users of the JSON form read. Bytes are keys and values, uncompressed, unless said otherwise.
type restoreResult struct {
	Brokers int    `json:"brokers"`
	Tools   string `json:"tools"`
	Turns   int    `json:"turns"`
	// Records and Bytes are the changelog as it was written, tombstones included; BrokerBytes is what the brokers store of it.
	Records     float64 `json:"changelog_records"`
	Bytes       float64 `json:"changelog_bytes"`
	BrokerBytes float64 `json:"changelog_broker_bytes"`
	// State is what is left of it when it is folded: what a compacted changelog would hold, and a worker holds.
	State stateSize `json:"state"`
	// DiskBytes is what the worker's data directory takes.
	DiskBytes float64 `json:"disk_bytes"`

	Restore readSpeed `json:"restore"`
	Floor   readSpeed `json:"floor"`
	PeakMB  float64   `json:"peak_mb"`
	CPU     float64   `json:"cpu_s"`
	// Resumed is the start after a kill, with the disk.
	Resumed readSpeed `json:"resumed"`
}

// readSpeed is how fast something was read.
type readSpeed struct {
	Seconds  float64 `json:"seconds"`
	Records  float64 `json:"records"`
	RecordsS float64 `json:"records_per_s"`
	MBS      float64 `json:"mb_per_s"`
}

func speedOf(records, bytes, seconds float64) readSpeed {
	return readSpeed{Seconds: seconds, Records: records, RecordsS: ratio(records, seconds), MBS: ratio(bytes/1e6, seconds)}
}

// stateSize is what turns and sessions leave behind.
type stateSize struct {
	Keys       int     `json:"keys"`
	Bytes      float64 `json:"bytes"`
	TurnBytes  float64 `json:"bytes_per_turn_record"`
	PerTurn    float64 `json:"history_bytes_per_turn"`
	PerSession float64 `json:"history_bytes_per_session"`
}

func runBenchRestore(ctx context.Context, env Env, f restoreFlags) error {
	b, err := openBench(ctx, env, f.benchFlags)
	if err != nil {
		return err
	}
	defer b.close()
	if !f.asJSON {
		say(env.Stdout, "broker: %s (%d), %d partitions, %d turns, %d to a session\n\n", b.what, b.brokers, f.partitions, f.turns, f.perSession)
		say(env.Stdout, "%-6s %9s %7s | %7s %9s %7s %6s | %9s %7s %6s | %7s %6s | %8s %8s %8s | %7s %7s\n", "tools", "records", "MB", "restore", "records/s", "MB/s", "s/GB",
			"floor/s", "MB/s", "ratio", "peak MB", "cpu s", "B/turn", "B/sess", "disk MB", "resumed", "records")
	}
	for _, kind := range f.tools {
		r, err := b.measureRestore(ctx, kind, f)
		if err != nil {
			return fmt.Errorf("measure the restore after %s turns: %w", kind, err)
		}
		if err := printRestore(env, f, r); err != nil {
			return err
		}
	}
	return nil
}

func printRestore(env Env, f restoreFlags, r restoreResult) error {
	if f.asJSON {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("write a result: %w", err)
		}
		say(env.Stdout, "%s\n", line)
		return nil
	}
	say(env.Stdout, "%-6s %9.0f %7.1f | %6.2fs %9.0f %7.1f %6.1f | %9.0f %7.1f %6.2f | %7.0f %6.2f | %8.0f %8.0f %8.1f | %6.2fs %7.0f\n", r.Tools, r.Records, r.Bytes/1e6,
		r.Restore.Seconds, r.Restore.RecordsS, r.Restore.MBS, ratio(1000, r.Restore.MBS), r.Floor.RecordsS, r.Floor.MBS, ratio(r.Restore.RecordsS, r.Floor.RecordsS),
		r.PeakMB, r.CPU, r.State.TurnBytes+r.State.PerTurn, r.State.PerSession, r.DiskBytes/1e6, r.Resumed.Seconds, r.Resumed.Records)
	return nil
}

// measureRestore makes a state, and restores it.
func (b *bench) measureRestore(ctx context.Context, kind string, f restoreFlags) (r restoreResult, err error) {
	b.runs++
	spec := runSpec{kind: kind, inFlight: 512, name: fmt.Sprintf("r%d-%d.", os.Getpid(), b.runs)}
	r = restoreResult{Brokers: b.brokers, Tools: kind, Turns: f.turns}
	s, dir, err := b.prepare(ctx, &spec)
	if err != nil {
		return r, err
	}
	if err := b.makeState(ctx, s, spec, dir, f); err != nil {
		return r, fmt.Errorf("run the turns: %w", err)
	}
	if err := r.readFloor(ctx, s, f); err != nil {
		return r, fmt.Errorf("the floor: %w", err)
	}
	if err := os.RemoveAll(s.DataDir); err != nil {
		return r, fmt.Errorf("remove the worker's disk: %w", err)
	}
	if err := b.restoreTwice(ctx, &r, spec, dir, s.DataDir); err != nil {
		return r, err
	}
	return r, b.dropTopics(ctx, s)
}

// makeState runs the turns in a closed loop and drains the worker.
func (b *bench) makeState(ctx context.Context, s *app.Settings, spec runSpec, dir string, f restoreFlags) error {
	c, err := b.startMeasured(ctx, spec, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	d, err := openDriver(ctx, s, spec)
	if err != nil {
		return err
	}
	defer d.close()
	d.limit, d.perSession = f.turns, f.perSession
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() { cancel(d.read(ctx)) })
	d.fill(ctx, spec.inFlight, 0)
	return d.finish(ctx)
}

// readFloor reads the changelog with no logic, and then once more to see what it is made of.
func (r *restoreResult) readFloor(ctx context.Context, s *app.Settings, f restoreFlags) error {
	topic := s.Topics().Changelog
	began := time.Now()
	err := readTopic(ctx, s, topic, func(rec *kgo.Record) {
		r.Records++
		r.Bytes += float64(len(rec.Key) + len(rec.Value))
	})
	if err != nil {
		return err
	}
	r.Floor = speedOf(r.Records, r.Bytes, time.Since(began).Seconds())
	live := make(map[string]int)
	err = readTopic(ctx, s, topic, func(rec *kgo.Record) {
		key := fmt.Sprint(rec.Partition, string(rec.Key))
		if rec.Value == nil {
			delete(live, key)
		} else {
			live[key] = len(rec.Key) + len(rec.Value)
		}
	})
	if err != nil {
		return err
	}
	r.State = sizeOf(live, f)
	r.BrokerBytes, err = storedBytes(ctx, s, topic)
	return err
}

// sizeOf sums up a folded state. A key is the partition, and the state key, whose first byte says what it is.
func sizeOf(live map[string]int, f restoreFlags) stateSize {
	out := stateSize{Keys: len(live)}
	var history float64
	for key, n := range live {
		out.Bytes += float64(n)
		switch key := strings.TrimLeft(key, "0123456789"); {
		case strings.HasPrefix(key, "h"):
			history += float64(n)
		case strings.HasPrefix(key, "t"):
			out.TurnBytes += float64(n) / float64(f.turns)
		}
	}
	out.PerTurn = history / float64(f.turns)
	out.PerSession = out.PerTurn * float64(f.perSession)
	return out
}

// storedBytes is what the brokers store of a topic, replicas included.
func storedBytes(ctx context.Context, s *app.Settings, topic string) (float64, error) {
	cl, err := clientConfig(s).NewClient()
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	dirs, err := kadm.NewClient(cl).DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("ask for the size of %s: %w", topic, err)
	}
	sum := 0.0
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if p.Topic == topic {
				sum += float64(p.Size)
			}
		})
	})
	return sum, nil
}

// restoreTwice starts the worker without its disk, kills it, and starts it with it.
func (b *bench) restoreTwice(ctx context.Context, r *restoreResult, spec runSpec, dir, dataDir string) error {
	c, speed, err := b.startRestored(ctx, spec, dir)
	if err != nil {
		return err
	}
	r.Restore = speed
	if r.PeakMB, err = peakOf(c.pid()); err != nil {
		c.stop()
		return err
	}
	used, err := cpuOf(c.pid())
	if err != nil {
		c.stop()
		return err
	}
	r.CPU = used.Seconds()
	_ = c.cmd.Process.Kill() // It is killed, not stopped, so that the next start has to trust what it finds.
	c.stop()
	if r.DiskBytes, err = sizeOfDir(dataDir); err != nil {
		return err
	}
	if c, r.Resumed, err = b.startRestored(ctx, spec, dir); err != nil {
		return err
	}
	c.stop()
	return nil
}

// startRestored starts a worker and waits until it has said of each partition that it is restored. The time is from the first
// beginning to the last end.
func (b *bench) startRestored(ctx context.Context, spec runSpec, dir string) (*child, readSpeed, error) {
	log := &restoreLog{left: int(b.flags.partitions), done: make(chan struct{})}
	env := b.env
	env.Stderr = log
	c, err := startChild(ctx, env, append(b.workerEnviron(spec, dir), "LATHE_LOG_LEVEL=info", "LATHE_LOG_FORMAT=json"), "bench", "worker")
	if err != nil {
		return nil, readSpeed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*benchPatience)
	defer cancel()
	select {
	case <-log.done:
		return c, log.speed(), nil
	case <-ctx.Done():
		c.stop()
		return nil, readSpeed{}, fmt.Errorf("wait for the restore: %w", context.Cause(ctx))
	}
}

// restoreLog reads a worker's log lines about restores.
type restoreLog struct {
	done chan struct{}

	mu             sync.Mutex
	rest           []byte
	left           int
	began, ended   time.Time
	records, bytes float64
}

// Write implements io.Writer.
func (l *restoreLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.rest = rest
		l.takeLocked(line)
	}
}

func (l *restoreLog) takeLocked(line []byte) {
	var said struct {
		Time    time.Time `json:"time"`
		Msg     string    `json:"msg"`
		Records float64   `json:"records"`
		Bytes   float64   `json:"bytes"`
		Seconds float64   `json:"seconds"`
	}
	if json.Unmarshal(line, &said) != nil || said.Msg != "partition is restored" || l.left == 0 {
		return
	}
	l.left--
	l.records, l.bytes = l.records+said.Records, l.bytes+said.Bytes
	if began := said.Time.Add(-time.Duration(said.Seconds * float64(time.Second))); l.began.IsZero() || began.Before(l.began) {
		l.began = began
	}
	if said.Time.After(l.ended) {
		l.ended = said.Time
	}
	if l.left == 0 {
		close(l.done)
	}
}

func (l *restoreLog) speed() readSpeed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return speedOf(l.records, l.bytes, l.ended.Sub(l.began).Seconds())
}

func sizeOfDir(dir string) (float64, error) {
	sum := 0.0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += float64(info.Size())
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure the worker's disk: %w", err)
	}
	return sum, nil
}
