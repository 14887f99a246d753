package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/netcut"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// bed is a cluster, fake or real, with the topics of an app.
type bed struct {
	t       testing.TB
	name    string
	opts    []kgo.Opt
	version int
	wires   *netcut.Wires

	admin                             *kadm.Client
	producer                          *kgo.Client
	turns, changelog, output, letters Topic

	sent int
}

const bedPartitions = 4

// newBed makes the topics. The options reach the cluster.
func newBed(tb testing.TB, name string, version int, w *netcut.Wires, opts ...kgo.Opt) *bed {
	tb.Helper()
	b := &bed{
		t: tb, name: name, version: version, wires: w,
		opts: append([]kgo.Opt{kgo.DisableClientMetrics(), kgo.MetadataMinAge(10 * time.Millisecond)}, opts...),
	}
	b.producer = b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerLinger(0))
	b.admin = kadm.NewClient(b.client())
	large := map[string]*string{"max.message.bytes": new("8388608")}
	b.turns = b.topic(name+"-turns", large)
	b.changelog = b.topic(name+"-changelog", map[string]*string{"cleanup.policy": new("compact")})
	b.output = b.topic(name+"-events", nil)
	b.letters = b.topic(name+"-dlq", nil)
	return b
}

func (b *bed) client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	cl, err := b.newClient(opts...)
	must(b.t, err)
	b.t.Cleanup(cl.Close)
	return cl
}

func (b *bed) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(b.opts[:len(b.opts):len(b.opts)], opts...)...)
}

func (b *bed) topic(name string, configs map[string]*string) Topic {
	b.t.Helper()
	made, err := b.admin.CreateTopic(b.t.Context(), bedPartitions, -1, configs, name)
	must(b.t, err)
	b.eventually("topic "+name+" has leaders", func() bool {
		found, err := b.admin.ListTopics(b.t.Context(), name)
		if err != nil || len(found[name].Partitions) < bedPartitions {
			return false
		}
		for _, p := range found[name].Partitions {
			if p.Err != nil || p.Leader < 0 {
				return false
			}
		}
		return true
	})
	return Topic{Name: name, ID: made.ID, Partitions: bedPartitions, MaxMessageBytes: 1 << 20}
}

// eventually waits for something that nothing announces.
func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("never: %s", what)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-b.t.Context().Done():
			b.t.Fatalf("never: %s", what)
		}
	}
}

func (b *bed) produce(records ...*kgo.Record) {
	b.t.Helper()
	for _, r := range records {
		if r.Topic == "" {
			r.Topic = b.turns.Name
		}
	}
	must(b.t, b.producer.ProduceSync(b.t.Context(), records...).FirstErr())
}

// turn makes the record of a turn, where it belongs.
func turn(session, id string) *kgo.Record {
	return &kgo.Record{
		Key: []byte(session), Partition: murmur2Partition([]byte(session), bedPartitions),
		Value: fmt.Appendf(nil, `{"turn_id":%q,"session_id":%q,"messages":[{"role":"user","content":"hello"}]}`, id, session),
	}
}

func cancelOf(session, id string) *kgo.Record {
	r := turn(session, id)
	r.Value = fmt.Appendf(nil, `{"type":"cancel","turn_id":%q,"session_id":%q}`, id, session)
	return r
}

// sessionOn finds a session of a partition.
func sessionOn(partition int32, n int) string {
	for i := 0; ; i++ {
		s := fmt.Sprintf("s%d-%d", n, i)
		if murmur2Partition([]byte(s), bedPartitions) == partition {
			return s
		}
	}
}

// load produces n turns over some sessions, numbered on from the last load.
func (b *bed) load(n, sessions int) {
	b.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = turn("session-"+strconv.Itoa(b.sent%sessions), fmt.Sprintf("turn-%06d", b.sent))
		b.sent++
	}
	b.produce(records...)
}

// process is one worker process with its disk.
type process struct {
	*bed

	worker  *Worker
	handler *echo
	store   *statestore.Store
	stop    context.CancelFunc
	ended   chan struct{}
	err     error
	closed  bool
}

type setup struct {
	cfg     Config
	deps    Deps
	handler *echo
	fs      vfs.FS
	dir     string
	store   statestore.Config
}

// start starts a worker with a disk of its own, or the one given.
func (b *bed) start(changes ...func(*setup)) *process {
	b.t.Helper()
	s := setup{
		cfg: Config{
			Turns: b.turns, Changelog: b.changelog, DeadLetters: b.letters, Outputs: []Topic{b.output},
			Group: b.name, FetchMaxWait: 20 * time.Millisecond, DrainBudget: 5 * time.Second,
			SessionTimeout: 6 * time.Second, HeartbeatInterval: 100 * time.Millisecond,
			Txn: txn.Config{App: b.name, Instance: "pod-" + strconv.Itoa(rand.IntN(1<<30)), Incarnation: rand.Uint64(), TransactionVersion: b.version},
		},
		deps: Deps{
			Decoder: schemas.NewDecoder(schemas.DecoderOptions{}), NewClient: b.newClient, Logger: slog.New(slog.DiscardHandler),
			Hooks: Hooks{LogStartMoves: true},
		},
		handler: &echo{topic: b.output.Name},
		fs:      vfs.NewMem(),
		dir:     "state",
	}
	if os.Getenv("VERBOSE") != "" {
		s.deps.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, change := range changes {
		change(&s)
	}
	s.store.Dir, s.store.FS = s.dir, s.fs
	store, err := statestore.Open(s.store)
	must(b.t, err)
	s.deps.Store = store
	if s.deps.Handler == nil {
		s.deps.Handler = s.handler
	}
	worker, err := New(s.cfg, s.deps)
	must(b.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context()))
	p := &process{bed: b, worker: worker, handler: s.handler, store: store, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = worker.Run(ctx)
	}()
	b.t.Cleanup(p.kill)
	return p
}

func onDisk(fs vfs.FS) func(*setup) { return func(s *setup) { s.fs = fs } }

func with(f func(*Config)) func(*setup) { return func(s *setup) { f(&s.cfg) } }

// calm lets minutes of a bubble pass cheaply: otherwise brokers are asked every 20 ms.
func calm(s *setup) { s.cfg.HeartbeatInterval, s.cfg.FetchMaxWait = time.Second, 500*time.Millisecond }

func handling(e *echo) func(*setup) {
	return func(s *setup) { e.topic = s.handler.topic; s.handler = e }
}

func (p *process) status() map[int32]string {
	return p.statusOf(func(s PartitionStatus) string { return s.State })
}

func (p *process) statusOf(f func(PartitionStatus) string) map[int32]string {
	out := map[int32]string{}
	for _, s := range p.worker.Status().Partitions {
		out[s.Partition] = f(s)
	}
	return out
}

// running waits until the worker runs n partitions.
func (p *process) running(n int) *process {
	p.t.Helper()
	p.eventually(fmt.Sprintf("%d partitions run", n), func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("the worker ended: %v", p.err)
		default:
		}
		count := 0
		for _, s := range p.status() {
			if s == stateRunning.String() {
				count++
			}
		}
		return count == n && len(p.status()) == n
	})
	return p
}

// drain stops the worker in order.
func (p *process) drain() {
	p.t.Helper()
	p.stop()
	<-p.ended
	p.close()
	if p.err != nil {
		p.t.Fatalf("drain: %v", p.err)
	}
}

// kill stops the worker at once.
func (p *process) kill() {
	p.worker.StopNow()
	p.stop()
	<-p.ended
	p.close()
}

func (p *process) close() {
	p.t.Helper()
	if !p.closed {
		p.closed = true
		must(p.t, p.store.Close())
	}
}

func sorted(m map[int32]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

func contains(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}
