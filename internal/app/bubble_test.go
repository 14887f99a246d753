package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

// bubble is a deployment in a test's bubble: a broker on a virtual network, and an engine whose models are played by the test.
type bubble struct {
	t      *testing.T
	opts   []kgo.Opt
	engine *Engine
	// tools are those of the next engine that is bound. What follows are settings of the next worker; recordBytes is also one of the next
	// engine, and 1 MiB if it is 0.
	tools       []tools.Tool
	partitioner consumer.Partitioner
	decoding    schemas.DecoderOptions
	recordBytes int
	codec       *dedupe.Codec
	client      *kgo.Client
	topics      map[string]consumer.Topic
	events      *kgo.Client
	started     map[string]bool
	ended       map[string]*schemas.TurnOutput
	fs          vfs.FS
	workers     int
}

const bubblePartitions = 4

func newBubble(t *testing.T, manifest string, models *providers) *bubble {
	t.Helper()
	network := &kfake.VirtualNetwork{}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(network.Listen), kfake.Ports(9092),
		kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}))
	must(t, err)
	t.Cleanup(cluster.Close)
	b := &bubble{
		t: t, topics: make(map[string]consumer.Topic), started: make(map[string]bool), ended: make(map[string]*schemas.TurnOutput), fs: vfs.NewMem(),
		opts: []kgo.Opt{
			kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(network.DialContext), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10 * time.Millisecond),
		},
	}
	b.client = b.connect()
	for _, name := range []string{"turns", "changelog", "tool-events", "turn-events", "dlq"} {
		made, err := kadm.NewClient(b.client).CreateTopic(t.Context(), bubblePartitions, 1, nil, name)
		must(t, err)
		b.topics[name] = consumer.Topic{Name: name, ID: made.ID, Partitions: bubblePartitions, MaxMessageBytes: 1 << 20}
	}
	b.events = b.connect(kgo.ConsumeTopics("turn-events"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	b.bind(manifest, models)
	return b
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (b *bubble) connect(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	cl, err := b.newClient(opts...)
	must(b.t, err)
	b.t.Cleanup(cl.Close)
	return cl
}

func (b *bubble) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(b.opts[:len(b.opts):len(b.opts)], opts...)...)
}

func (b *bubble) bind(manifest string, models *providers) {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "lathe.yaml")
	must(b.t, os.WriteFile(path, []byte(manifest), 0o600))
	s, err := LoadOfflineSettings(b.t.Context(), nil, os.ReadFile)
	must(b.t, err)
	m, err := LoadManifest(path, func(string) (string, bool) { return "", false })
	must(b.t, err)
	engine, err := NewEngine(s, m, Program{Tools: b.tools}, EngineDeps{
		Logger: slog.New(slog.DiscardHandler), Worker: "w", Telemetry: NoTelemetry(), ModelTransport: models,
	})
	must(b.t, err)
	b.engine = engine
	b.t.Cleanup(func() { must(b.t, engine.Close(context.WithoutCancel(b.t.Context()))) })
	encoder, err := schemas.NewEncoder(schemas.EncodingJSON, schemas.EncoderOptions{})
	must(b.t, err)
	b.codec, err = dedupe.NewCodec(dedupe.Config{
		App: "app", Worker: "w", ToolTopic: "tool-events", TurnTopic: "turn-events", ToolEncoder: encoder, TurnEncoder: encoder,
		RecordBytes: cmp.Or(b.recordBytes, 1<<20), Now: time.Now,
	})
	must(b.t, err)
}

// running is a worker that runs in the bubble.
type running struct {
	*consumer.Worker

	stop func() error
}

// start starts a worker that goes on from the disk of the last one and waits until it is ready. It is drained with the test, or by
// stop.
func (b *bubble) start() *running {
	b.t.Helper()
	w := b.launch()
	b.until("the worker is ready", func() bool { s := w.Status(); return s.Ready && len(s.Partitions) == bubblePartitions })
	return w
}

// launch is start without the wait.
func (b *bubble) launch() *running {
	b.t.Helper()
	store, err := statestore.Open(statestore.Config{Dir: "state", FS: b.fs, Age: dedupe.Age})
	must(b.t, err)
	b.workers++
	logger := slog.New(slog.DiscardHandler)
	w, err := consumer.New(consumer.Config{
		Turns: b.topics["turns"], Changelog: b.topics["changelog"], DeadLetters: b.topics["dlq"],
		Outputs: []consumer.Topic{b.topics["tool-events"], b.topics["turn-events"]},
		Group:   "app", FetchMaxWait: 5 * time.Second, Partitioner: b.partitioner, MaxTurnBytes: b.recordBytes,
		Txn: txn.Config{App: "app", Instance: "w", Incarnation: uint64(b.workers), TransactionVersion: 2},
	}, consumer.Deps{
		Handler: newHandler(b.engine, b.codec, NoTelemetry(), "app", logger), Decoder: schemas.NewDecoder(b.decoding),
		Store: store, NewClient: b.newClient, Logger: logger,
	})
	must(b.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stopped := false
	r := &running{Worker: w, stop: func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		err := <-ended
		must(b.t, store.Close())
		return err
	}}
	b.t.Cleanup(func() { must(b.t, r.stop()) })
	return r
}

// send sends turn events.
func (b *bubble) send(events ...*schemas.TurnEvent) {
	b.t.Helper()
	records := make([]*kgo.Record, len(events))
	for i, ev := range events {
		value, err := json.Marshal(ev)
		must(b.t, err)
		records[i] = &kgo.Record{Topic: "turns", Key: []byte(ev.SessionID), Value: value}
	}
	must(b.t, b.client.ProduceSync(b.t.Context(), records...).FirstErr())
}

func turnOf(agent, id, session string) *schemas.TurnEvent {
	return &schemas.TurnEvent{TurnID: id, SessionID: session, Agent: agent, Messages: []schemas.Message{{Role: "user", Text: "hello"}}}
}

// turnsOf are n turns of an agent over some sessions.
func turnsOf(agent string, n, sessions int) []*schemas.TurnEvent {
	out := make([]*schemas.TurnEvent, n)
	for i := range out {
		out[i] = turnOf(agent, fmt.Sprintf("%s-%d", agent, i), fmt.Sprintf("%s-s%d", agent, i%sessions))
	}
	return out
}

// poll takes the events that have come.
func (b *bubble) poll() {
	b.fetch(b.events, func(r *kgo.Record) {
		var out schemas.TurnOutput
		must(b.t, json.Unmarshal(r.Value, &out))
		switch out.Type {
		case schemas.TypeTurnStart:
			b.started[out.TurnID] = true
		case schemas.TypeTurnEnd:
			if b.ended[out.TurnID] != nil {
				b.t.Errorf("turn %s has two ends", out.TurnID)
			}
			b.ended[out.TurnID] = &out
		}
	})
}

func (b *bubble) fetch(from *kgo.Client, each func(*kgo.Record)) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 50*time.Millisecond)
	defer cancel()
	from.PollFetches(ctx).EachRecord(each)
}

// until polls until the condition holds.
func (b *bubble) until(what string, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !holds(); b.poll() {
		if time.Now().After(deadline) {
			b.t.Fatalf("not in five minutes: %s; %d turns have begun, %d ended", what, len(b.started), len(b.ended))
		}
	}
}

// pass lets time pass.
func (b *bubble) pass(d time.Duration) {
	<-time.After(d)
	for range 10 {
		b.poll()
	}
}

// count counts the turns whose id begins so.
func count[T any](turns map[string]T, prefix string) int {
	n := 0
	for id := range turns {
		if strings.HasPrefix(id, prefix) {
			n++
		}
	}
	return n
}
