package txn

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// lowerMax sets max.message.bytes of a topic while it is written to, as an operator may.
func (b *bed) lowerMax(topic string, bytes int) {
	b.t.Helper()
	must(b.t, kafkatest.SetConfig(b.t.Context(), b.admin, topic, "max.message.bytes", strconv.Itoa(bytes)))
}

// noise does not compress.
func noise(n int) []byte {
	out := make([]byte, n)
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

// with is a cycle with more records of these sizes for one partition of the output.
func (w *worker) with(id string, sizes ...int) *Cycle {
	c := w.cycle(id, 0, 1)
	for _, n := range sizes {
		c.Records = append(c.Records, &kgo.Record{Topic: w.output, Partition: 2, Value: noise(n)})
	}
	return c
}

// blamesTheOne lets an operator lower what a topic takes. One record of many is too large now: it is found, and nothing else is
// blamed for being in its company. The same for a record that the client itself does not send.
func blamesTheOne(b *bed) {
	w := b.worker(func(c *Config) { c.BatchBytes = map[string]int{b.output: 100_000} })
	sizes := slices.Repeat([]int{300}, 40)
	sizes[29], sizes[33] = 9000, 9001
	b.lowerMax(b.output, 4000)
	b.eventually("the broker refuses both large records, and only those", func() bool {
		res, err := w.ring.Commit(b.t.Context(), w.with("never", sizes...))
		must(b.t, err)
		requireOutcome(b.t, res, Aborted, ErrTooLarge)
		refused, ok := errors.AsType[*RecordError](res.Err)
		if !ok {
			requireOutcome(b.t, res, Aborted, ErrBatchRefused)
			if w.ring.CycleBytes() == 0 {
				b.t.Fatal("the ring does not ask for smaller cycles")
			}
			return false
		}
		for _, i := range refused.Indexes {
			if i != 4+29 && i != 4+33 {
				b.t.Fatalf("records %v are blamed", refused.Indexes)
			}
		}
		return true
	})
	requireOutcome(b.t, w.commit("after", 0, 1), Committed, nil)

	sizes[33], sizes[29] = 300, 200_000
	res, err := w.ring.Commit(b.t.Context(), w.with("never", sizes...))
	must(b.t, err)
	refused, ok := errors.AsType[*RecordError](res.Err)
	if !ok || !cmp.Equal(refused.Indexes, []int{4 + 29}) || !errors.Is(res.Err, kerr.MessageTooLarge) {
		b.t.Fatalf("got %v, want record %d refused by the client", res.Err, 4+29)
	}
	b.requireOnce(values("after", 0, 1)...)
}

// sendsSmallerBatches lets an operator lower what a topic takes below what the ring puts into a batch. No record is too large, so
// none is blamed, and all are committed.
func sendsSmallerBatches(b *bed) {
	w := b.worker()
	b.lowerMax(b.output, 3000)
	tries := 0
	b.eventually("the cycle is committed", func() bool {
		tries++
		c := w.with("many", slices.Repeat([]int{400}, 50)...)
		res, err := w.ring.Commit(b.t.Context(), c)
		must(b.t, err)
		if res.Outcome == Aborted {
			requireOutcome(b.t, res, Aborted, ErrBatchRefused)
		}
		w.apply(c, res)
		return res.Outcome == Committed
	})
	if tries < 2 || tries > 5 {
		b.t.Errorf("committed after %d tries", tries)
	}
	if n := len(b.read(b.output)); n != 52 {
		b.t.Errorf("%d records are visible, want 52", n)
	}
}

func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	for range 60 {
		if ok() {
			return
		}
	}
	b.t.Fatalf("never: %s", what)
}

func TestBatchLimits_BlameOnlyARecordThatWasAlone(t *testing.T) {
	t.Parallel()
	record := func(topic string, partition int32, n int) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: partition, Value: make([]byte, n-recordOverhead)}
	}
	a1, a2, b1 := record("a", 0, 100), record("a", 0, 300), record("b", 0, 100)
	other := record("a", 1, 100)
	for _, tc := range []struct {
		name    string
		refused []*kgo.Record
		want    []*kgo.Record
		limit   int
	}{
		{"one alone", []*kgo.Record{a1}, []*kgo.Record{a1}, 0},
		{"one alone in each of two partitions", []*kgo.Record{a1, other}, []*kgo.Record{a1, other}, 0},
		{"two in one batch", []*kgo.Record{a1, a2}, nil, 200},
		{"two in one batch, and one alone", []*kgo.Record{a1, a2, b1}, []*kgo.Record{b1}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := batchLimits{most: func(string) int { return 1000 }, now: time.Now}
			got := l.blame(tc.refused)
			if !slices.Equal(got, tc.want) || l.smallest() != tc.limit {
				t.Errorf("blames %v, limit %d; want %v, limit %d", got, l.smallest(), tc.want, tc.limit)
			}
		})
	}
}

// The search ends whatever the sizes are: at a record that is alone, or where nothing is refused any more.
func TestBatchLimits_FindEveryGuiltyRecord(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		l := batchLimits{most: func(string) int { return 1 << 20 }, now: time.Now}
		records := make([]*kgo.Record, 1+r.IntN(200))
		guilty := make(map[*kgo.Record]bool)
		for i := range records {
			records[i] = &kgo.Record{Topic: "a", Partition: int32(r.IntN(3)), Value: make([]byte, r.IntN(1<<(1+r.IntN(16))))}
			guilty[records[i]] = r.IntN(20) == 0
		}
		for tries := 0; ; tries++ {
			refused := send(l.rounds(records), guilty)
			if len(refused) == 0 {
				break
			}
			found := l.blame(refused)
			for _, f := range found {
				if !guilty[f] {
					t.Fatalf("seed %d: a record that is not refused by itself is blamed", seed)
				}
				records = slices.DeleteFunc(records, func(r *kgo.Record) bool { return r == f })
			}
			if tries > 400 {
				t.Fatalf("seed %d: no end after %d tries", seed, tries)
			}
		}
		for _, left := range records {
			if guilty[left] {
				t.Fatalf("seed %d: a refused record was sent", seed)
			}
		}
	}
}

// send is what a broker refuses of the first round that it does not take: all that a partition has in it, if one is guilty.
func send(rounds [][]*kgo.Record, guilty map[*kgo.Record]bool) (refused []*kgo.Record) {
	for _, round := range rounds {
		bad := make(map[int32]bool)
		for _, r := range round {
			bad[r.Partition] = bad[r.Partition] || guilty[r]
		}
		for _, r := range round {
			if bad[r.Partition] {
				refused = append(refused, r)
			}
		}
		if len(refused) > 0 {
			return refused
		}
	}
	return nil
}

func TestBatchLimits_AreLiftedAfterAWhile(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := batchLimits{most: func(string) int { return 1000 }, now: func() time.Time { return now }}
	two := []*kgo.Record{{Topic: "a", Value: make([]byte, 300)}, {Topic: "a", Value: make([]byte, 300)}}
	l.blame(two)
	if n := len(l.rounds(two)); n != 2 {
		t.Fatalf("%d rounds under the limit, want 2", n)
	}
	now = now.Add(relaxAfter - 1)
	if n := len(l.rounds(two)); n != 2 {
		t.Errorf("%d rounds before the time is over, want 2", n)
	}
	now = now.Add(1)
	if n := len(l.rounds(two)); n != 1 || l.smallest() != 640 {
		t.Errorf("%d rounds and limit %d afterwards, want 1 and 640", n, l.smallest())
	}
	now = now.Add(relaxAfter)
	if l.rounds(two); l.smallest() != 0 {
		t.Errorf("limit %d at the end, want none", l.smallest())
	}
}
