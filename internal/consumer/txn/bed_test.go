package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const bedPartitions = 4

// bed is a cluster, fake or real, with the topics and the group member that a ring needs.
type bed struct {
	t       testing.TB
	opts    []kgo.Opt
	last    func() []kgo.Opt // override those of a slot
	version int
	wires   *wires

	name, input, output, changelog string
	inputID                        [16]byte
	admin                          *kadm.Client
	consumer                       *member
}

// newBed makes topics and joins a group as its only member. The last options reach the cluster.
func newBed(tb testing.TB, version int, name string, w *wires, consumer []kgo.Opt, opts ...kgo.Opt) *bed {
	tb.Helper()
	b := &bed{
		t: tb, version: version, name: name, wires: w,
		opts:  append([]kgo.Opt{kgo.DisableClientMetrics(), kgo.MetadataMinAge(10 * time.Millisecond)}, opts...),
		last:  func() []kgo.Opt { return nil },
		input: name + "-in", output: name + "-out", changelog: name + "-changelog",
	}
	b.admin = kadm.NewClient(b.client())
	b.createTopic(b.output, bedPartitions, -1)
	b.createTopic(b.changelog, bedPartitions, -1)
	b.inputID = b.createTopic(b.input, bedPartitions, -1)
	b.consumer = b.join(consumer...)
	b.consumer.wait(bedPartitions)
	return b
}

func (b *bed) client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	cl, err := kgo.NewClient(slices.Concat(b.opts, opts)...)
	must(b.t, err)
	b.t.Cleanup(cl.Close)
	return cl
}

func (b *bed) createTopic(topic string, partitions int32, replicas int16) [16]byte { //nolint:unparam // Tests with the tag kafka give other numbers.
	b.t.Helper()
	made, err := b.admin.CreateTopic(b.t.Context(), partitions, replicas, nil, topic)
	must(b.t, err)
	// A broker may be slow to learn of the topic: ask the leaders.
	for {
		ends, err := b.admin.ListEndOffsets(b.t.Context(), topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil && len(ends[topic]) == int(partitions) {
			return made.ID
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-b.t.Context().Done():
			b.t.Fatalf("no leaders for topic %s: %v", topic, err)
		}
	}
}

// member is a consumer in the bed's group.
type member struct {
	*kgo.Client

	tb    testing.TB
	moved chan struct{}
	mu    sync.Mutex
	owned map[int32]bool
}

// join makes one more member of the group.
func (b *bed) join(opts ...kgo.Opt) *member {
	b.t.Helper()
	m := &member{tb: b.t, moved: make(chan struct{}, 1), owned: map[int32]bool{}}
	change := func(to bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range partitions[b.input] {
				if m.owned[p] = to; !to {
					delete(m.owned, p)
				}
			}
			select {
			case m.moved <- struct{}{}:
			default:
			}
		}
	}
	m.Client = b.client(append([]kgo.Opt{
		kgo.ConsumerGroup(b.name), kgo.ConsumeTopics(b.input), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	}, opts...)...)
	return m
}

// wait returns the partitions of the member when it has n.
func (m *member) wait(n int) []int32 {
	m.tb.Helper()
	for {
		m.mu.Lock()
		owned := slices.Sorted(maps.Keys(m.owned))
		m.mu.Unlock()
		if len(owned) == n {
			return owned
		}
		select {
		case <-m.moved:
		case <-m.tb.Context().Done():
			m.tb.Fatalf("has partitions %v, want %d", owned, n)
		}
	}
}

func (m *member) membership() Membership {
	id, generation := m.GroupMetadata()
	return Membership{MemberID: id, Generation: generation}
}

// worker is one process: a ring, and what it knows of its partitions.
type worker struct {
	*bed

	ring       *Ring
	partitions map[int32]*Offset
}

func (b *bed) config(changes ...func(*Config)) Config {
	cfg := Config{
		App: b.name, Instance: "pod-0", Incarnation: rand.Uint64(), Group: b.name, Changelog: b.changelog,
		TransactionVersion: b.version, Logger: slog.New(slog.DiscardHandler),
		NewClient: func(opts ...kgo.Opt) (*kgo.Client, error) {
			return kgo.NewClient(slices.Concat(b.opts, opts, b.last())...)
		},
	}
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

// worker opens a ring and takes every partition, with the metadata that is committed.
func (b *bed) worker(changes ...func(*Config)) *worker {
	b.t.Helper()
	ring, err := Open(b.t.Context(), b.config(changes...))
	must(b.t, err)
	b.t.Cleanup(ring.Close)
	w := &worker{bed: b, ring: ring, partitions: map[int32]*Offset{}}
	committed := b.committed()
	for p := range int32(bedPartitions) {
		o := &Offset{Topic: b.input, TopicID: b.inputID, Partition: p, LeaderEpoch: -1, Baseline: committed[p].Metadata}
		if m, ok := ParseMetadata(o.Baseline); ok {
			o.Offset, o.ChangelogNext = committed[p].At, m.ChangelogNext
			ring.SetCID(m.CID)
		}
		w.partitions[p] = o
	}
	return w
}

// cycle makes one that writes id to the output and the changelog of some partitions and moves their offsets on by one.
func (w *worker) cycle(id string, partitions ...int32) *Cycle {
	c := &Cycle{Group: w.consumer.membership()}
	for _, p := range partitions {
		value := []byte(id + "/" + strconv.Itoa(int(p)))
		c.Records = append(c.Records,
			&kgo.Record{Topic: w.changelog, Partition: p, Key: []byte("key"), Value: value},
			&kgo.Record{Topic: w.output, Partition: p, Value: value})
		o := *w.partitions[p]
		o.Offset++
		c.Offsets = append(c.Offsets, o)
	}
	return c
}

// commit runs a cycle and remembers what it changed.
func (w *worker) commit(id string, partitions ...int32) Result {
	w.t.Helper()
	c := w.cycle(id, partitions...)
	res, err := w.ring.Commit(w.t.Context(), c)
	must(w.t, err)
	w.apply(c, res)
	return res
}

func (w *worker) apply(c *Cycle, res Result) {
	if res.Outcome != Committed {
		return
	}
	for _, o := range c.Offsets {
		mine := w.partitions[o.Partition]
		mine.Offset, mine.Baseline, mine.ChangelogNext = o.Offset, res.Metadata[o.Partition], res.ChangelogNext[o.Partition]
	}
}

func (b *bed) committed() map[int32]kadm.Offset {
	b.t.Helper()
	all, err := b.admin.FetchOffsets(b.t.Context(), b.name)
	must(b.t, err)
	out := map[int32]kadm.Offset{}
	all.Each(func(o kadm.OffsetResponse) {
		must(b.t, o.Err)
		if o.Topic == b.input {
			out[o.Partition] = o.Offset
		}
	})
	return out
}

// visible counts every value of a topic that a read_committed reader sees, once no transaction is open.
func (b *bed) visible(topic string) map[string]int {
	b.t.Helper()
	seen := map[string]int{}
	for _, r := range b.read(topic) {
		seen[string(r.Value)]++
	}
	return seen
}

// read returns every committed record of a topic.
func (b *bed) read(topic string) []*kgo.Record {
	b.t.Helper()
	ends := b.stableEnds(topic)
	start := map[string]map[int32]kgo.Offset{topic: {}}
	for p := range ends {
		start[topic][p] = kgo.NewOffset().AtStart()
	}
	reader := b.client(kgo.ConsumePartitions(start), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(50*time.Millisecond))
	var records []*kgo.Record
	for len(ends) > 0 {
		fetches := reader.PollFetches(b.t.Context())
		must(b.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
	return records
}

// stableEnds returns the end of every partition that has records, as soon as no transaction is open in it.
func (b *bed) stableEnds(topic string) map[int32]int64 {
	b.t.Helper()
	for {
		stable, err := b.admin.ListCommittedOffsets(b.t.Context(), topic)
		must(b.t, err)
		high, err := b.admin.ListEndOffsets(b.t.Context(), topic)
		must(b.t, err)
		ends, open := map[int32]int64{}, false
		high.Each(func(o kadm.ListedOffset) {
			must(b.t, o.Err)
			s, _ := stable.Lookup(topic, o.Partition)
			open = open || s.Offset != o.Offset
			if o.Offset > 0 {
				ends[o.Partition] = o.Offset
			}
		})
		if !open {
			return ends
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-b.t.Context().Done():
			b.t.Fatal("a transaction stays open")
		}
	}
}

// requireOnce checks that exactly the given cycles are visible, once, in output and changelog.
func (b *bed) requireOnce(want ...string) {
	b.t.Helper()
	expected := map[string]int{}
	for _, v := range want {
		expected[v]++
	}
	equal(b.t, b.visible(b.output), expected)
	equal(b.t, b.visible(b.changelog), expected)
}

func values(id string, partitions ...int32) []string {
	out := make([]string, 0, len(partitions))
	for _, p := range partitions {
		out = append(out, fmt.Sprintf("%s/%d", id, p))
	}
	return out
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func equal[T any](tb testing.TB, got, want T) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("unexpected (-want +got):\n%s", diff)
	}
}

func requireOutcome(tb testing.TB, res Result, want Outcome, reason error) {
	tb.Helper()
	if res.Outcome != want || !errors.Is(res.Err, reason) {
		tb.Fatalf("got %s, %v; want %s, %v", res.Outcome, res.Err, want, reason)
	}
}
