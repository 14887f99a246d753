package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bed is a cluster, fake or real, with the topics of an app.
type bed struct {
	t       testing.TB
	name    string
	opts    []kgo.Opt
	version int
	wires   *wires

	admin                             *kadm.Client
	producer                          *kgo.Client
	turns, changelog, output, letters Topic

	sent int
}

const bedPartitions = 4

// newBed makes the topics. The options reach the cluster.
func newBed(t testing.TB, name string, version int, w *wires, opts ...kgo.Opt) *bed {
	t.Helper()
	b := &bed{
		t: t, name: name, version: version, wires: w,
		opts: append([]kgo.Opt{kgo.DisableClientMetrics(), kgo.MetadataMinAge(10 * time.Millisecond)}, opts...),
	}
	b.producer = b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerLinger(0))
	b.admin = kadm.NewClient(b.client())
	large := map[string]*string{"max.message.bytes": kmsg.StringPtr("8388608")}
	b.turns = b.topic(name+"-turns", large)
	b.changelog = b.topic(name+"-changelog", map[string]*string{"cleanup.policy": kmsg.StringPtr("compact")})
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
		deps:    Deps{Decoder: schemas.NewDecoder(schemas.DecoderOptions{}), NewClient: b.newClient, Logger: slog.New(slog.DiscardHandler)},
		handler: &echo{topic: b.output.Name},
		fs:      vfs.NewMem(),
	}
	if os.Getenv("VERBOSE") != "" {
		s.deps.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, change := range changes {
		change(&s)
	}
	store, err := statestore.Open(statestore.Config{Dir: "state", FS: s.fs})
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

func onDisk(fs vfs.FS) func(*setup)     { return func(s *setup) { s.fs = fs } }
func with(f func(*Config)) func(*setup) { return func(s *setup) { f(&s.cfg) } }
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

// echo is a handler that writes what it was asked: an output per turn, a count per session in the state, and the turn's record, so
// that a turn which comes again is known.
type echo struct {
	topic string
	// on is called as a turn runs; an error ends it so.
	on func(ctx context.Context, a *Assignment, rec *Record) error
	// open and resume are called as a partition opens.
	open   func(a *Assignment) error
	resume func(a *Assignment) []Task

	mu        sync.Mutex
	ran       []string
	cancelled []string
	opened    []*Assignment
}

func (e *echo) Open(_ context.Context, a *Assignment) (PartitionHandler, error) {
	e.mu.Lock()
	e.opened = append(e.opened, a)
	e.mu.Unlock()
	if e.open != nil {
		if err := e.open(a); err != nil {
			return nil, err
		}
	}
	return &echoPartition{echo: e, a: a}, nil
}

func (e *echo) assignments() []*Assignment {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.opened)
}

func (e *echo) runs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.ran)
}

type echoPartition struct {
	*echo

	a *Assignment
}

func (p *echoPartition) Resume(context.Context) ([]Task, error) {
	if p.resume == nil {
		return nil, nil
	}
	return p.resume(p.a), nil
}

func (p *echoPartition) Handle(ctx context.Context, rec *Record) error {
	p.mu.Lock()
	p.ran = append(p.ran, rec.Event.TurnID)
	p.mu.Unlock()
	if p.on != nil {
		if err := p.on(ctx, p.a, rec); err != nil {
			return err
		}
	}
	return p.complete(rec)
}

func (p *echoPartition) complete(rec *Record) error {
	turnKey, countKey := "turn/"+rec.Event.TurnID, "count/"+rec.Event.SessionID
	if _, known, err := p.a.State.Get(turnKey); err != nil || known {
		return errors.Join(err, p.add(&statestore.Effect{Offset: rec.Offset, Urgent: true}))
	}
	value, _, err := p.a.State.Get(countKey)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSuspended, err)
	}
	count := uint64(1)
	if value != nil {
		count += binary.BigEndian.Uint64(value[1:])
	}
	return p.add(&statestore.Effect{
		Mutations: []statestore.Mutation{
			{Op: statestore.OpSet, Key: turnKey, Value: []byte{statestore.Format}},
			{Op: statestore.OpSet, Key: countKey, Value: binary.BigEndian.AppendUint64([]byte{statestore.Format}, count)},
			{Op: statestore.OpAppend, Key: "log/" + rec.Event.SessionID, Value: []byte(rec.Event.TurnID + "\n")},
		},
		Outputs: []statestore.Output{{
			Topic: p.topic, Key: rec.Key, Value: fmt.Appendf(nil, "%s %d", rec.Event.TurnID, count), Partition: -1,
			Headers: []statestore.Header{{Key: "kind", Value: []byte("echo")}},
		}},
		Offset: rec.Offset, Urgent: true,
	})
}

func (p *echoPartition) add(e *statestore.Effect) error {
	if err := p.a.State.Add(e); err != nil {
		return fmt.Errorf("%w: %w", ErrSuspended, err)
	}
	return nil
}

func (p *echoPartition) Cancel(_ context.Context, rec *Record) error {
	p.mu.Lock()
	p.cancelled = append(p.cancelled, rec.Event.TurnID)
	p.mu.Unlock()
	return p.add(&statestore.Effect{Offset: rec.Offset})
}

func (p *echoPartition) Rejected(rec *Record, reason *schemas.Error) []statestore.Output {
	return []statestore.Output{{Topic: p.topic, Key: rec.Key, Value: []byte("rejected " + rec.Event.TurnID + " " + string(reason.Code)), Partition: -1}}
}

// read returns every committed record of a topic, once no transaction is open, by partition in log order.
func (b *bed) read(topic string) []*kgo.Record {
	b.t.Helper()
	ends := b.stableEnds(topic)
	start := map[string]map[int32]kgo.Offset{topic: {}}
	for p, end := range ends {
		if end > 0 {
			start[topic][p] = kgo.NewOffset().AtStart()
		}
	}
	if len(start[topic]) == 0 {
		return nil
	}
	reader := b.client(kgo.ConsumePartitions(start), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(50*time.Millisecond))
	defer reader.Close()
	var out []*kgo.Record
	next := map[int32]int64{}
	done := func() bool {
		for p := range start[topic] {
			if next[p] < ends[p] {
				return false
			}
		}
		return true
	}
	for !done() {
		fetches := reader.PollFetches(b.t.Context())
		must(b.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() && r.Offset < ends[r.Partition] {
				out = append(out, r)
			}
		})
	}
	slices.SortFunc(out, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return out
}

// stableEnds waits until every transaction on the topic is decided.
func (b *bed) stableEnds(topic string) map[int32]int64 {
	b.t.Helper()
	ends := map[int32]int64{}
	b.eventually("no transaction is open on "+topic, func() bool {
		high, err := b.admin.ListEndOffsets(b.t.Context(), topic)
		must(b.t, errors.Join(err, high.Error()))
		stable, err := b.admin.ListCommittedOffsets(b.t.Context(), topic)
		must(b.t, errors.Join(err, stable.Error()))
		same := true
		high.Each(func(o kadm.ListedOffset) {
			l, _ := stable.Lookup(topic, o.Partition)
			same = same && l.Offset == o.Offset
			ends[o.Partition] = o.Offset
		})
		return same
	})
	return ends
}

// outputs are the values on the output topic, by session.
func (b *bed) outputs() map[string][]string {
	out := map[string][]string{}
	for _, r := range b.read(b.output.Name) {
		out[string(r.Key)] = append(out[string(r.Key)], string(r.Value))
	}
	return out
}

// handled waits until every turn of the loads so far has its output.
func (b *bed) handled() {
	b.t.Helper()
	b.eventually("all turns are handled", func() bool {
		ends, err := b.admin.ListEndOffsets(b.t.Context(), b.turns.Name)
		must(b.t, err)
		committed := b.committed()
		all := true
		ends.Each(func(o kadm.ListedOffset) { all = all && (o.Offset == 0 || committed[o.Partition].At == o.Offset) })
		return all
	})
}

func (b *bed) committed() map[int32]kadm.Offset {
	b.t.Helper()
	all, err := b.admin.FetchOffsets(b.t.Context(), b.name)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	must(b.t, err)
	out := map[int32]kadm.Offset{}
	all.Each(func(o kadm.OffsetResponse) {
		if o.Topic == b.turns.Name {
			out[o.Partition] = o.Offset
		}
	})
	return out
}

// exactlyOnce checks that every turn of the loads has one output, in the order of its session.
func (b *bed) exactlyOnce(sessions int) {
	b.t.Helper()
	want := map[string][]string{}
	for i := range b.sent {
		s := "session-" + strconv.Itoa(i%sessions)
		want[s] = append(want[s], fmt.Sprintf("turn-%06d %d", i, len(want[s])+1))
	}
	if diff := cmp.Diff(want, b.outputs()); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

// folded is the committed changelog, the last value of each key.
func (b *bed) folded() map[int32]map[string]string {
	out := map[int32]map[string]string{}
	for p := range int32(bedPartitions) {
		out[p] = map[string]string{}
	}
	for _, r := range b.read(b.changelog.Name) {
		if r.Value == nil {
			delete(out[r.Partition], string(r.Key))
		} else {
			out[r.Partition][string(r.Key)] = string(r.Value)
		}
	}
	return out
}

// stateIsTheChangelog compares the local state of every partition with the changelog.
func (p *process) stateIsTheChangelog() {
	p.t.Helper()
	for id, want := range p.folded() {
		got := map[string]string{}
		must(p.t, p.store.Scan(id, "", func(key string, value []byte) error {
			got[key] = string(value)
			return nil
		}))
		if diff := cmp.Diff(want, got); diff != "" {
			p.t.Errorf("partition %d (-changelog +state):\n%s", id, diff)
		}
	}
}

func sorted(m map[int32]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

// wires are the connections of a test, which can be made to break at requests of some kind.
type wires struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// at says what becomes of a request.
	at func(key kmsg.Key) damage
}

type damage uint8

const (
	cutNothing damage = iota
	// cutRequest loses the request before the broker has it.
	cutRequest
	// cutAnswer loses the answer after the broker has acted.
	cutAnswer
)

var errCut = errors.New("the test cut the wire")

func (w *wires) breakAt(at func(key kmsg.Key) damage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
}

func (w *wires) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, wires: w}, nil
}

type wire struct {
	net.Conn

	wires *wires
	mu    sync.Mutex
	cut   bool
}

func (c *wire) Write(request []byte) (int, error) {
	c.wires.mu.Lock()
	how := cutNothing
	if c.wires.at != nil && len(request) >= 6 {
		how = c.wires.at(kmsg.Key(binary.BigEndian.Uint16(request[4:])))
	}
	c.wires.mu.Unlock()
	switch how {
	case cutRequest:
		c.Conn.Close()
		return 0, errCut
	case cutAnswer:
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
	case cutNothing:
	}
	return c.Conn.Write(request)
}

// Read loses what the broker answers after the cut: it has acted by then.
func (c *wire) Read(answer []byte) (int, error) {
	n, err := c.Conn.Read(answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		c.Conn.Close()
		return 0, errCut
	}
	return n, err
}

func contains(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}
