package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/netcut"
)

// metaMurmur2 is the partition of a key, as the producers choose it.
func metaMurmur2(key string) int32 {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("")
	return int32(p.Partition(&kgo.Record{Key: []byte(key)}, metaPartitions))
}

// metaBed is a cluster in a bubble, its topics, and the worker processes on it.
type metaBed struct {
	t       *testing.T
	seed    uint64
	version int
	network *kfake.VirtualNetwork
	cluster *kfake.Cluster
	seeds   []string
	admin   *kadm.Client
	sender  *kgo.Client

	turns, changelog, toolEvents, turnEvents, letters consumer.Topic

	settings *Settings
	manifest *Manifest
	protocol consumer.Protocol
	ledger   *metaLedger
	pace     *pace

	live    []*metaProcess
	started int
	// watch knows of each process whether it has ever let go of something uncommitted.
	watch *metaWatch
}

func newMetaBed(t *testing.T, seed uint64, brokers, version int, protocol consumer.Protocol) *metaBed {
	t.Helper()
	b := &metaBed{
		t: t, seed: seed, version: version, protocol: protocol, network: &kfake.VirtualNetwork{}, ledger: &metaLedger{starts: map[string][]string{}},
		pace: &pace{random: rand.New(rand.NewPCG(seed, 2))}, watch: &metaWatch{unclean: map[string]string{}},
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(brokers), kfake.ListenFn(b.network.Listen), kfake.Ports([]int{9092, 9093, 9094}[:brokers]...),
		kfake.BrokerConfigs(map[string]string{
			"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0",
			"group.consumer.heartbeat.interval.ms": "300", "group.consumer.session.timeout.ms": "3000",
		}),
	}
	if version < 2 {
		opts = append(opts, kfake.MaxVersions(kversion.V3_9_0()))
	}
	var err error
	b.cluster, err = kfake.NewCluster(opts...)
	must(t, err)
	t.Cleanup(b.cluster.Close)
	b.seeds = b.cluster.ListenAddrs()
	b.boundRequests()
	b.sender, err = b.newClient(newMetaWires(b.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	t.Cleanup(b.sender.Close)
	b.admin = kadm.NewClient(b.sender)
	b.turns = b.topic("turns", nil)
	b.changelog = b.topic("changelog", map[string]*string{"cleanup.policy": new("compact")})
	b.toolEvents, b.turnEvents, b.letters = b.topic("tool-events", nil), b.topic("turn-events", nil), b.topic("dlq", nil)
	b.settings, b.manifest = metaFiles(t)
	return b
}

// maxRequests bounds the requests of one kind within a second, of all processes together, and busySeconds for how many of them on end
// there may be so many fetches that they are held up.
const (
	maxRequests = 3_000
	fastFetches = 400
	busySeconds = 10
)

// boundRequests ends the test when requests come in a tight loop: time stands still in the bubble then, and it would never end.
//
// The client fetches again at once beside a partition that answers with an error, until its metadata is new. Without any latency
// that would be for ever, so fetches take a while when there are many.
func (b *metaBed) boundRequests() {
	count, second, busy := map[int16]int{}, int64(0), 0
	fetch := kmsg.Fetch.Int16()
	b.cluster.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		if now := time.Now().Unix(); now != second {
			if busy++; count[fetch] <= fastFetches || now != second+1 {
				busy = 0
			}
			second = now
			clear(count)
		}
		if count[r.Key()]++; count[r.Key()] > maxRequests || busy > busySeconds {
			panic(fmt.Sprintf("seed %d: %d requests %s in a second, now %+v\n%s", b.seed, count[r.Key()], kmsg.NameForKey(r.Key()), r, strings.Join(b.watch.last(60), "\n")))
		}
		if count[fetch] > fastFetches && r.Key() == fetch {
			b.cluster.SleepControl(func() { <-time.After(5 * time.Millisecond) })
		}
		return nil, nil, false //nolint:nilnil // Not handled, to kfake.
	})
}

func (w *metaWatch) last(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lines[max(0, len(w.lines)-n):])
}

func (b *metaBed) newClient(w *metaWires, opts ...kgo.Opt) (*kgo.Client, error) {
	all := []kgo.Opt{
		kgo.SeedBrokers(b.seeds...), kgo.Dialer(w.Dial), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10 * time.Millisecond),
	}
	// The race detector makes compression very slow.
	return kgo.NewClient(append(append(all, opts...), kgo.WithCompressor(nil), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
}

func (b *metaBed) topic(name string, configs map[string]*string) consumer.Topic {
	b.t.Helper()
	made, err := b.admin.CreateTopic(b.t.Context(), metaPartitions, -1, configs, name)
	must(b.t, err)
	return consumer.Topic{Name: name, ID: made.ID, Partitions: metaPartitions, MaxMessageBytes: 1 << 20}
}

func (b *metaBed) send(in metaInput) {
	b.t.Helper()
	must(b.t, b.sender.ProduceSync(b.t.Context(), &kgo.Record{Topic: b.turns.Name, Partition: in.partition, Key: in.key, Value: in.value}).FirstErr())
}

// metaProcess is one worker process with its disk.
type metaProcess struct {
	bed            *metaBed
	name, instance string
	disk           *vfs.MemFS
	wires          *metaWires
	worker         *consumer.Worker
	engine         *Engine
	store          *statestore.Store
	stop           context.CancelFunc
	ended          chan struct{}
	err            error
}

// start starts a worker under an instance id, with a disk.
func (b *metaBed) start(instance string, disk *vfs.MemFS) *metaProcess {
	b.t.Helper()
	b.started++
	p := &metaProcess{
		bed: b, name: fmt.Sprintf("process-%d", b.started), instance: instance, disk: disk,
		wires: newMetaWires(b.network.DialContext), ended: make(chan struct{}),
	}
	logger := slog.New(b.watch.handler(p.name))
	var err error
	p.engine, err = metaEngine(b.settings, b.manifest, p.name, b.ledger, b.pace, EngineDeps{Logger: logger, Worker: p.name, Telemetry: NoTelemetry()})
	must(b.t, err)
	encoder, err := schemas.NewEncoder(schemas.EncodingJSON, schemas.EncoderOptions{})
	must(b.t, err)
	codec, err := dedupe.NewCodec(dedupe.Config{
		App: "meta", Worker: p.name, Process: p.name, ToolTopic: b.toolEvents.Name, TurnTopic: b.turnEvents.Name,
		ToolEncoder: encoder, TurnEncoder: encoder, RecordBytes: valueBudget(b.settings), Now: time.Now,
	})
	must(b.t, err)
	p.store, err = statestore.Open(statestore.Config{Dir: "state", FS: disk, RecordBytes: valueBudget(b.settings), Age: dedupe.Age})
	must(b.t, err)
	p.worker, err = consumer.New(consumer.Config{
		Turns: b.turns, Changelog: b.changelog, DeadLetters: b.letters, Outputs: []consumer.Topic{b.toolEvents, b.turnEvents},
		Group: "meta", Protocol: b.protocol, FetchMaxWait: 100 * time.Millisecond, DrainBudget: 10 * time.Second,
		SessionTimeout: 3 * time.Second, HeartbeatInterval: 300 * time.Millisecond,
		Txn: txn.Config{App: "meta", Instance: instance, Incarnation: rand.Uint64(), TransactionVersion: b.version, Timeout: 5 * time.Second},
	}, consumer.Deps{
		Handler: newHandler(p.engine, codec, NoTelemetry(), "meta", logger),
		Decoder: schemas.NewDecoder(schemas.DecoderOptions{}), Store: p.store, Logger: logger,
		NewClient: func(opts ...kgo.Opt) (*kgo.Client, error) { return b.newClient(p.wires, opts...) },
	})
	must(b.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context()))
	p.stop = stop
	go func() {
		defer close(p.ended)
		p.err = p.worker.Run(ctx)
	}()
	b.live = append(b.live, p)
	return p
}

// kill ends the process at once and returns what its disk holds after: everything that was synced, and some of the rest.
func (p *metaProcess) kill(random *rand.Rand, silently bool) *vfs.MemFS {
	p.bed.watch.mark(p.name, "killed")
	if silently { // The brokers hear nothing of it.
		p.wires.sever(true)
	}
	left := p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
	p.worker.StopNow()
	p.close()
	return left
}

// drain stops the process in order.
func (p *metaProcess) drain() error {
	p.stop()
	p.close()
	return p.err
}

func (p *metaProcess) close() {
	p.stop()
	<-p.ended
	p.wires.sever(true) // A client that waits for an answer that never comes was left behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.bed.t.Context()), time.Minute)
	defer cancel()
	if err := errors.Join(p.engine.Close(ctx), p.store.Close()); err != nil {
		p.bed.t.Errorf("close %s: %v", p.name, err)
	}
	for i, l := range p.bed.live {
		if l == p {
			p.bed.live = append(p.bed.live[:i], p.bed.live[i+1:]...)
			break
		}
	}
}

// hasEnded reports whether the process has ended by itself.
func (p *metaProcess) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// metaWires are the connections of one process, which can be cut off as a whole too.
type metaWires struct {
	netcut.Wires

	mu      sync.Mutex
	severed bool
	conns   map[net.Conn]bool
}

func newMetaWires(dial netcut.Dial) *metaWires {
	w := &metaWires{conns: map[net.Conn]bool{}}
	w.Through = func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		severed := w.severed
		w.mu.Unlock()
		if severed {
			return nil, netcut.ErrCut
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conns[conn] = true
		return conn, nil
	}
	return w
}

// sever cuts the process off, or lets it come back.
func (w *metaWires) sever(on bool) {
	w.mu.Lock()
	w.severed = on
	conns := w.conns
	w.conns = map[net.Conn]bool{}
	w.mu.Unlock()
	for c := range conns {
		c.Close()
	}
}

// breakAt breaks connections at the next requests of a kind, before or after the broker has acted.
func (w *metaWires) breakAt(key kmsg.Key, times int, after bool) {
	how := netcut.CutRequest
	if after {
		how = netcut.CutAnswer
	}
	w.BreakAt(func(k kmsg.Key) netcut.Cut {
		if k != key || times == 0 {
			return netcut.CutNothing
		}
		times--
		return how
	})
}

// metaWatch reads the logs of the processes: they say when work was given up that nobody had asked to be.
type metaWatch struct {
	mu      sync.Mutex
	unclean map[string]string
	lines   []string
}

func (w *metaWatch) mark(process, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unclean[process] = why
}

func (w *metaWatch) handler(process string) slog.Handler { return metaLog{watch: w, process: process} }

// metaLog is the log handler of one process.
type metaLog struct {
	watch   *metaWatch
	process string
	attrs   string
}

func (metaLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (h metaLog) Handle(_ context.Context, r slog.Record) error {
	text := h.attrs
	idle := true
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		if a.Key == "idle" || a.Key == "clean" {
			idle = idle && a.Value.Bool()
		}
		return true
	})
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	if os.Getenv("VERBOSE") != "" {
		fmt.Fprintln(os.Stderr, time.Now().Format("04:05.000"), h.process, r.Message, text)
	}
	h.watch.lines = append(h.watch.lines, fmt.Sprintf("%s %s %s:%s", time.Now().Format("05.000"), h.process, r.Message, text))
	switch r.Message {
	case "partitions are lost", "partition has another owner", "the group has thrown us out; everything is lost", "worker cannot go on", "group session ended":
		h.watch.unclean[h.process] = r.Message
	case "partition is drained":
		if !idle {
			h.watch.unclean[h.process] = r.Message
		}
	}
	return nil
}

func (h metaLog) WithAttrs(as []slog.Attr) slog.Handler {
	for _, a := range as {
		if a.Key != "component" {
			h.attrs += " " + a.String()
		}
	}
	return h
}

func (h metaLog) WithGroup(string) slog.Handler { return h }
