package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
)

// runSpec is one run: of a worker, or of the floor when floor says what to write.
type runSpec struct {
	kind     string
	inFlight int
	name     string
	admin    string
	floor    *shape
}

// runResult is what one run gave.
type runResult struct {
	span       time.Duration
	latencies  []time.Duration
	workerCPU  time.Duration
	brokerCPU  time.Duration
	driverCPU  time.Duration
	peakMB     float64
	cycles     float64
	cycleP50MS float64
	shape      shape
}

func (r *runResult) rate() float64 { return float64(len(r.latencies)) / r.span.Seconds() }

func (r *runResult) perThousand(d time.Duration) float64 {
	if len(r.latencies) == 0 {
		return 0
	}
	return d.Seconds() / float64(len(r.latencies)) * 1000
}

// quantile is a quantile of the latencies in milliseconds.
func (r *runResult) quantile(q float64) float64 {
	if len(r.latencies) == 0 {
		return 0
	}
	slices.Sort(r.latencies)
	return float64(r.latencies[int(q*float64(len(r.latencies)-1))]) / float64(time.Millisecond)
}

// run runs one closed loop against a worker or the floor, in topics of its own.
func (b *bench) run(ctx context.Context, spec runSpec) (res *runResult, err error) {
	s, dir, err := b.prepare(ctx, &spec)
	if err != nil {
		return nil, err
	}
	c, err := b.startMeasured(ctx, spec, dir)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	d, err := openDriver(ctx, s, spec)
	if err != nil {
		return nil, err
	}
	defer d.close()
	d.perSession = b.flags.perSession
	if res, err = b.loop(ctx, d, c, spec); err != nil {
		return nil, err
	}
	c.stop()
	if spec.floor == nil {
		res.shape, err = readShape(ctx, s, d.ended())
	}
	return res, errors.Join(err, b.dropTopics(ctx, s))
}

// prepare makes a run's folder, files and topics, and finds it an address for its probes.
func (b *bench) prepare(ctx context.Context, spec *runSpec) (s *app.Settings, dir string, err error) {
	dir = filepath.Join(b.dir, spec.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("make a folder for the run: %w", err)
	}
	if err := writeBenchFiles(dir, spec.kind); err != nil {
		return nil, "", err
	}
	if spec.admin, err = freeAddr(ctx); err != nil {
		return nil, "", err
	}
	if s, err = b.settings(ctx, *spec, dir); err != nil {
		return nil, "", err
	}
	return s, dir, b.createTopics(ctx, s)
}

func (b *bench) startMeasured(ctx context.Context, spec runSpec, dir string) (*child, error) {
	environ := b.workerEnviron(spec, dir)
	if spec.floor != nil {
		path := filepath.Join(dir, "shape.json")
		if err := writeFloor(path, spec.kind, spec.floor); err != nil {
			return nil, err
		}
		return startChild(ctx, b.env, environ, "bench", "floor", path)
	}
	args := []string{"bench", "worker"}
	if b.flags.profile != "" {
		args = append(args, filepath.Join(b.flags.profile, fmt.Sprintf("%s-%d.prof", spec.kind, spec.inFlight)))
	}
	return startChild(ctx, b.env, environ, args...)
}

// freeAddr is an address on this machine that was free a moment ago.
func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// loop keeps the turns in flight, warms up, and measures.
func (b *bench) loop(ctx context.Context, d *driver, c *child, spec runSpec) (*runResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() { cancel(d.read(ctx)) })
	d.fill(ctx, spec.inFlight, spec.turnTime())
	if err := d.wait(ctx, b.flags.warm, true); err != nil {
		return nil, err
	}
	before, err := b.sample(spec, c)
	if err != nil {
		return nil, err
	}
	d.record(true)
	began := time.Now()
	if err := d.wait(ctx, b.flags.span, false); err != nil {
		return nil, err
	}
	res := &runResult{span: time.Since(began), latencies: d.record(false)}
	after, err := b.sample(spec, c)
	if err != nil {
		return nil, err
	}
	res.workerCPU, res.brokerCPU, res.driverCPU = after.worker-before.worker, after.broker-before.broker, after.driver-before.driver
	res.cycles, res.peakMB, res.cycleP50MS = after.cycles-before.cycles, after.peakMB, after.cycleP50MS
	return res, d.drain(ctx)
}

// driver sends turns and sees them end.
type driver struct {
	producer, reader *kgo.Client
	topic            string
	prefix           string
	// limit is how many turns are sent at most, perSession how many of them make a session; 0 is no limit, and
	// turns that name no session.
	limit, perSession int

	mu struct {
		sync.Mutex
		sent      map[string]time.Time
		next      int
		stopped   bool
		recording bool
		latencies []time.Duration
	}
	done  atomic.Int64
	quiet chan struct{}
}

func openDriver(ctx context.Context, s *app.Settings, spec runSpec) (*driver, error) {
	n := s.Topics()
	from, err := offsets(ctx, s, false, []string{n.TurnEvents})
	if err != nil {
		return nil, err
	}
	d := &driver{topic: n.Turns, prefix: spec.name, quiet: make(chan struct{})}
	d.mu.sent = make(map[string]time.Time)
	if d.producer, err = clientConfig(s).NewClient(kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression())); err != nil {
		return nil, err
	}
	d.reader, err = clientConfig(s).NewClient(kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(500*time.Millisecond))
	return d, err
}

func (d *driver) close() {
	d.producer.Close()
	d.reader.Close()
}

// fill sends n turns, evenly over a time. Slow turns that begin together end together, and a measurement would count a wave of them more
// or less.
func (d *driver) fill(ctx context.Context, n int, over time.Duration) {
	began := time.Now()
	for i := range n {
		select {
		case <-time.After(time.Until(began.Add(over * time.Duration(i) / time.Duration(n)))):
		case <-ctx.Done():
			return
		}
		d.send(ctx)
	}
}

// turnTime is how long a turn waits for its models and tools.
func (s runSpec) turnTime() time.Duration {
	if s.kind != benchSlow {
		return 0
	}
	return slowTurn
}

// send sends one more turn.
func (d *driver) send(ctx context.Context) {
	d.mu.Lock()
	if d.mu.stopped || d.limit > 0 && d.mu.next >= d.limit {
		d.mu.Unlock()
		return
	}
	n := d.mu.next
	d.mu.next++
	id := "t" + strconv.Itoa(d.mu.next)
	d.mu.sent[id] = time.Now()
	d.mu.Unlock()
	key, session := id, ""
	if d.perSession > 0 {
		key = "s" + strconv.Itoa(n/d.perSession)
		session = `"session_id":"` + key + `",`
	}
	value := []byte(turnHead + id + `",` + session + `"messages":[{"role":"user","content":"Please answer a question."}]}`)
	d.producer.Produce(context.WithoutCancel(ctx), &kgo.Record{Topic: d.topic, Key: []byte(key), Value: value}, nil) // A lost turn shows: the loop starves.
}

// turnHead is how each turn begins that is sent.
const turnHead = `{"turn_id":"`

// sentTurn is the id of a turn that was sent.
func sentTurn(value []byte) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(string(value), turnHead), `"`)
	return id
}

// read sees turns end, until ctx does.
func (d *driver) read(ctx context.Context) error {
	for ctx.Err() == nil {
		fetches := d.reader.PollFetches(ctx)
		if err := firstError(fetches); err != nil {
			return err
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if id, ok := endedTurn(rec); ok {
				d.end(ctx, id, time.Now())
			}
		})
	}
	return context.Cause(ctx)
}

// endedTurn is the turn of a turn:end, from the record's headers alone.
func endedTurn(rec *kgo.Record) (string, bool) {
	id, end := "", false
	for _, h := range rec.Headers {
		switch h.Key {
		case "ce_type":
			end = string(h.Value) == "run.lathe.turn.end"
		case "ce_subject":
			id = string(h.Value)
		}
	}
	return id, end
}

func (d *driver) end(ctx context.Context, id string, now time.Time) {
	d.mu.Lock()
	sent, ok := d.mu.sent[id]
	delete(d.mu.sent, id)
	if ok && d.mu.recording {
		d.mu.latencies = append(d.mu.latencies, now.Sub(sent))
	}
	if ok && d.mu.stopped && len(d.mu.sent) == 0 {
		close(d.quiet)
	}
	d.mu.Unlock()
	if ok {
		d.done.Add(1)
		d.send(ctx)
	}
}

// record starts or stops recording latencies, and returns those recorded.
func (d *driver) record(on bool) []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.mu.latencies
	d.mu.recording, d.mu.latencies = on, nil
	return out
}

const benchPatience = 60 * time.Second

// wait lets the loop run for a time; for the warm-up that begins with the first turn that ends.
func (d *driver) wait(ctx context.Context, span time.Duration, first bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); first && d.done.Load() == 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if time.Since(began) > benchPatience {
			return fmt.Errorf("no turn has ended within %s", benchPatience)
		}
	}
	t := time.NewTimer(span)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drain stops sending and waits for the turns in flight.
func (d *driver) drain(ctx context.Context) error {
	d.mu.Lock()
	d.mu.stopped = true
	left := len(d.mu.sent)
	d.mu.Unlock()
	if left == 0 {
		return nil
	}
	t := time.NewTimer(benchPatience)
	defer t.Stop()
	select {
	case <-d.quiet:
		return nil
	case <-t.C:
		return errors.New("turns in flight did not end")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish waits until all turns of the limit have ended.
func (d *driver) finish(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last, since := int64(-1), time.Now()
	for {
		done := d.done.Load()
		if done >= int64(d.limit) {
			return nil
		}
		if done > last {
			last, since = done, time.Now()
		}
		if time.Since(since) > benchPatience {
			return fmt.Errorf("no turn has ended for %s; %d of %d have", benchPatience, done, d.limit)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ended is how many turns have ended.
func (d *driver) ended() int64 { return d.done.Load() }

func (b *bench) createTopics(ctx context.Context, s *app.Settings) error {
	cl, err := clientConfig(s).NewClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	n := s.Topics()
	compact := "compact"
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, b.flags.partitions, -1, map[string]*string{"cleanup.policy": &compact}, n.Changelog); err != nil {
		return fmt.Errorf("make the benchmark's topics: %w", err)
	}
	made, err := adm.CreateTopics(ctx, b.flags.partitions, -1, nil, n.Turns, n.ToolEvents, n.TurnEvents, n.TurnStatus, n.DLQ)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		return fmt.Errorf("make the benchmark's topics: %w", err)
	}
	return awaitTopics(ctx, s, n.Turns, n.ToolEvents, n.TurnEvents, n.TurnStatus, n.DLQ, n.Changelog)
}

// awaitTopics waits until the brokers know topics that were just made: it takes them a moment.
func awaitTopics(ctx context.Context, s *app.Settings, topics ...string) error {
	ctx, cancel := context.WithTimeout(ctx, benchPatience)
	defer cancel()
	return until(ctx, func() error {
		_, err := offsets(ctx, s, true, topics)
		return err
	})
}

func (b *bench) dropTopics(ctx context.Context, s *app.Settings) error {
	cl, err := clientConfig(s).NewClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	n := s.Topics()
	if _, err := kadm.NewClient(cl).DeleteTopics(ctx, n.Turns, n.ToolEvents, n.TurnEvents, n.TurnStatus, n.DLQ, n.Changelog); err != nil {
		return fmt.Errorf("remove the benchmark's topics: %w", err)
	}
	return nil
}

func countBrokers(ctx context.Context, addrs string) (int, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...))
	if err != nil {
		return 0, fmt.Errorf("reach the brokers: %w", err)
	}
	defer cl.Close()
	m, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		return 0, fmt.Errorf("reach the brokers at %s: %w", addrs, err)
	}
	return len(m.Brokers), nil
}
