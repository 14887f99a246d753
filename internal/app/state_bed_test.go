package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

const (
	statePartitions = 4
	// keepTurns and keepSessions are the retentions of the bed.
	keepTurns    = 90 * time.Minute
	keepSessions = 3 * time.Hour
)

// stateBed is a fake cluster in a bubble, for workers that are whole but for the process around them.
type stateBed struct {
	*testing.T

	opts     []kgo.Opt
	adm      *kadm.Client
	producer *kgo.Client
	topics   map[string]consumer.Topic
	// ahead is how far the workers' clocks are ahead of the bubble's, producers how far those of producers are.
	ahead, producers atomic.Int64
	// sent are the turn ids in the order they were first sent, with their sessions.
	sent map[string]string
}

func inStateBed(t *testing.T, test func(b *stateBed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(network.Listen), kfake.Ports(9092),
			kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Close)
		b := &stateBed{T: t, topics: map[string]consumer.Topic{}, sent: map[string]string{}, opts: []kgo.Opt{
			kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(network.DialContext), kgo.DisableClientMetrics(),
		}}
		b.producer = b.client(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerLinger(0))
		b.adm = kadm.NewClient(b.client())
		for _, name := range []string{"turns", "changelog", "tool-events", "turn-events", "dlq"} {
			made, err := b.adm.CreateTopic(t.Context(), statePartitions, -1, nil, name)
			b.must(err)
			b.topics[name] = consumer.Topic{Name: name, ID: made.ID, Partitions: statePartitions, MaxMessageBytes: 1 << 20}
		}
		test(b)
	})
}

func (b *stateBed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *stateBed) client(opts ...kgo.Opt) *kgo.Client {
	b.Helper()
	cl, err := b.newClient(opts...)
	b.must(err)
	b.Cleanup(cl.Close)
	return cl
}

func (b *stateBed) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(slices.Clone(b.opts), opts...)...)
}

func (b *stateBed) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

// stateWorker is a worker with its disk.
type stateWorker struct {
	*stateBed

	store  *statestore.Store
	worker *consumer.Worker
	engine *Engine
	stop   context.CancelFunc
	ended  chan struct{}
	closed bool
	err    error
}

// start starts a worker of a release on a disk.
func (b *stateBed) start(name string, disk vfs.FS, formats statestore.Formats) *stateWorker {
	b.Helper()
	store, err := statestore.Open(statestore.Config{Dir: "state", FS: disk, Age: dedupe.Age, Formats: formats})
	b.must(err)
	h := testHandler(b, NoTelemetry(), func(c *dedupe.Config) {
		c.Worker, c.Now, c.TurnRetention, c.SessionRetention = name, b.now, keepTurns, keepSessions
	})
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("VERBOSE") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	w, err := consumer.New(consumer.Config{
		Turns: b.topics["turns"], Changelog: b.topics["changelog"], DeadLetters: b.topics["dlq"],
		Outputs: []consumer.Topic{b.topics["tool-events"], b.topics["turn-events"]}, Group: "app", FetchMaxWait: 10 * time.Second,
		DrainBudget: 5 * time.Second, SessionTimeout: 30 * time.Second, HeartbeatInterval: 5 * time.Second,
		Txn: txn.Config{App: "app", Instance: name, Incarnation: incarnation(), TransactionVersion: 2},
	}, consumer.Deps{
		Handler: h, Decoder: schemas.NewDecoder(schemas.DecoderOptions{}), Store: store, NewClient: b.newClient, Logger: logger, Now: b.now,
	})
	b.must(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	p := &stateWorker{stateBed: b, store: store, worker: w, engine: h.engine, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = w.Run(ctx)
	}()
	b.Cleanup(p.kill)
	return p
}

// running waits until the workers run all partitions between them.
func (b *stateBed) running(workers ...*stateWorker) {
	b.Helper()
	b.eventually("all partitions run", func() bool {
		n := 0
		for _, w := range workers {
			for _, s := range w.worker.Status().Partitions {
				if s.State == "running" {
					n++
				}
			}
		}
		return n == statePartitions
	})
}

func (w *stateWorker) drain() {
	w.Helper()
	w.stop()
	<-w.ended
	w.must(w.err)
	w.close()
}

func (w *stateWorker) close() {
	w.Helper()
	if w.closed {
		return
	}
	w.closed = true
	w.must(errors.Join(w.store.Close(), w.engine.Close(context.WithoutCancel(w.Context()))))
}

func (w *stateWorker) kill() {
	w.Helper()
	w.worker.StopNow()
	<-w.ended
	w.stop()
	w.close()
}

func (b *stateBed) eventually(what string, ok func() bool) {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("never: %s", what)
		}
	}
}

// ask sends a turn, or sends it again, and waits until all that was sent is done.
func (b *stateBed) ask(session string, turns ...string) {
	b.Helper()
	b.send(session, turns...)
	b.handled()
}

func (b *stateBed) send(session string, turns ...string) {
	b.Helper()
	for _, id := range turns {
		b.sent[id] = session
		b.must(b.producer.ProduceSync(b.Context(), &kgo.Record{
			Topic: "turns", Key: []byte(session), Timestamp: time.Now().Add(time.Duration(b.producers.Load())),
			Value: fmt.Appendf(nil, `{"turn_id":%q,"session_id":%q,"messages":[{"role":"user","content":"hello"}]}`, id, session),
		}).FirstErr())
	}
}

func (b *stateBed) handled() {
	b.Helper()
	b.eventually("all turns are handled", func() bool {
		ends, err := b.adm.ListEndOffsets(b.Context(), "turns")
		b.must(err)
		committed, err := b.adm.FetchOffsets(b.Context(), "app")
		b.must(err)
		all := true
		ends.Each(func(o kadm.ListedOffset) {
			c, found := committed.Lookup("turns", o.Partition)
			all = all && (o.Offset == 0 || found && c.At == o.Offset)
		})
		return all
	})
}

// read returns the committed records of a topic in log order.
func (b *stateBed) read(topic string) []*kgo.Record {
	b.Helper()
	ends, err := b.adm.ListEndOffsets(b.Context(), topic)
	b.must(err)
	left := map[int32]int64{}
	from := map[string]map[int32]kgo.Offset{topic: {}}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition], from[topic][o.Partition] = o.Offset, kgo.NewOffset().AtStart()
		}
	})
	if len(left) == 0 {
		return nil
	}
	cl := b.client(kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(50*time.Millisecond))
	defer cl.Close()
	var out []*kgo.Record
	for len(left) > 0 {
		fetches := cl.PollFetches(b.Context())
		b.must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

// ends counts how often each turn has ended.
func (b *stateBed) ends() map[string]int {
	b.Helper()
	out := map[string]int{}
	for _, r := range b.read("turn-events") {
		var ev struct {
			Type   string `json:"type"`
			TurnID string `json:"turn_id"`
		}
		b.must(json.Unmarshal(r.Value, &ev))
		if ev.Type == schemas.TypeTurnEnd {
			out[ev.TurnID]++
		}
	}
	return out
}

// wantEnds checks that the turns have ended so many times each.
func (b *stateBed) wantEnds(n int, turns ...string) {
	b.Helper()
	ends := b.ends()
	for _, id := range turns {
		if ends[id] != n {
			b.Errorf("turn %s has ended %d times, want %d", id, ends[id], n)
		}
	}
}

// folded is the state that the committed changelog makes, by partition.
func (b *stateBed) folded() map[int32]map[string][]byte {
	b.Helper()
	out := map[int32]map[string][]byte{}
	for p := range int32(statePartitions) {
		out[p] = map[string][]byte{}
	}
	for _, r := range b.read("changelog") {
		if r.Value == nil {
			delete(out[r.Partition], string(r.Key))
		} else {
			out[r.Partition][string(r.Key)] = r.Value
		}
	}
	return out
}

// keys are the keys in the changelog, without the position, of which each used partition has one.
func (b *stateBed) keys() []string {
	b.Helper()
	var out []string
	for _, state := range b.folded() {
		delete(state, "p")
		out = append(out, slices.Collect(maps.Keys(state))...)
	}
	slices.Sort(out)
	return out
}

// isTheChangelog checks that the worker's disk has what the changelog has.
func (w *stateWorker) isTheChangelog() {
	w.Helper()
	for id, want := range w.folded() {
		got := map[string][]byte{}
		w.must(w.store.Scan(id, "", func(key string, value []byte) error {
			got[key] = bytes.Clone(value)
			return nil
		}))
		if diff := cmp.Diff(want, got); diff != "" {
			w.Errorf("partition %d (-changelog +disk):\n%s", id, diff)
		}
	}
}
