package consumer

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

func TestPartitioner_AgreesWithTheProducers(t *testing.T) {
	t.Parallel()
	java := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		key := make([]byte, rnd.IntN(40))
		for i := range key {
			key[i] = byte(rnd.IntN(256))
		}
		n := int32(1 + rnd.IntN(200))
		want := int32(java.Partition(&kgo.Record{Key: key}, int(n)))
		if got := murmur2Partition(key, n); got != want {
			t.Fatalf("key %x of %d: got %d, want %d", key, n, got, want)
		}
		librdkafka := int32(crc32.ChecksumIEEE(key) % uint32(n))
		for partition := range n {
			if got := PartitionerMurmur2.wrong(key, partition, n); got != (partition != want) {
				t.Fatalf("murmur2: key %x on %d of %d: wrong is %t", key, partition, n, got)
			}
			if got := PartitionerCRC32.wrong(key, partition, n); got != (partition != librdkafka) {
				t.Fatalf("crc32: key %x on %d of %d: wrong is %t", key, partition, n, got)
			}
			if PartitionerAny.wrong(key, partition, n) {
				t.Fatal("any refuses a partition")
			}
		}
	}
}

func testWorker(change func(*Config)) *Worker {
	cfg := Config{
		Turns: Topic{Name: "turns", Partitions: 4}, Changelog: Topic{Name: "log", Partitions: 4},
		DeadLetters: Topic{Name: "dlq", Partitions: 3, MaxMessageBytes: 100 << 10}, Outputs: []Topic{{Name: "events", Partitions: 7}},
		Group: "g",
	}.withDefaults()
	if change != nil {
		change(&cfg)
	}
	return &Worker{cfg: cfg, outputs: cfg.outputs(), deps: Deps{Now: func() time.Time { return time.Unix(1700000000, 0) }}}
}

func TestDeadLetter_FitsItsTopic(t *testing.T) {
	t.Parallel()
	w := testWorker(nil)
	limit := w.cfg.DeadLetters.MaxMessageBytes
	big := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	header := func(bytes int) []schemas.Header {
		return []schemas.Header{{Key: "h", Value: big(bytes - headersSize([]schemas.Header{{Key: "h"}}))}}
	}
	reason := &schemas.Error{Code: schemas.CodeTooLarge, Message: string(big(1 << 20))}
	// fits is how much of a record there is room for: key, value and headers.
	fits := limit - batchOverhead - recordSize(nil, nil, w.reasonHeaders(&Record{}, reason))
	for _, tc := range []struct {
		name       string
		rec        Record
		value, key int
		headers    int
		cut        bool
	}{
		{name: "small", rec: Record{Key: big(10), value: big(100), Headers: []schemas.Header{{Key: "h"}}}, value: 100, key: 10, headers: 1},
		{name: "nearly full", rec: Record{Key: big(10), value: big(limit - 3000)}, value: limit - 3000, key: 10},
		{name: "full", rec: Record{Key: big(10), value: big(limit)}, value: limit / 2, key: 10, cut: true},
		{name: "large value, headers kept", rec: Record{value: big(5 << 20), Headers: []schemas.Header{{Key: "h"}}}, value: limit / 2, headers: 1, cut: true},
		{name: "large key", rec: Record{Key: big(1 << 20), value: big(10)}, value: 10, key: cutPart, cut: true},
		{name: "large headers", rec: Record{value: big(10), Headers: []schemas.Header{{Key: "h", Value: big(1 << 20)}}}, value: 10, cut: true},
		{name: "all of them", rec: Record{Key: big(1 << 20), value: big(1 << 20), Headers: []schemas.Header{{Key: "h", Value: big(1 << 20)}}}, value: limit / 2, key: cutPart, cut: true},
		{name: "a batch", rec: Record{value: big(100), batch: true}, value: 100, cut: true},
		{name: "a byte less than fits", rec: Record{Key: big(10), value: big(fits - 11)}, value: fits - 11, key: 10},
		{name: "just what fits", rec: Record{Key: big(10), value: big(fits - 10)}, value: fits - 10, key: 10},
		{name: "a byte more than fits", rec: Record{Key: big(10), value: big(fits - 9)}, value: limit / 2, key: 10, cut: true},
		{name: "a key that just fits", rec: Record{Key: big(fits - 10), value: big(10)}, value: 10, key: fits - 10},
		{name: "a key a byte larger", rec: Record{Key: big(fits - 9), value: big(10)}, value: 10, key: cutPart, cut: true},
		{name: "headers that just fit", rec: Record{value: big(10), Headers: header(fits - 10)}, value: 10, headers: 1},
		{name: "headers a byte larger", rec: Record{value: big(10), Headers: header(fits - 9)}, value: 10, cut: true},
		{name: "a cut record, headers that just fit", rec: Record{value: big(limit), Headers: header(cutPart)}, value: limit / 2, headers: 1, cut: true},
		{name: "a cut record, headers a byte larger", rec: Record{value: big(limit), Headers: header(cutPart + 1)}, value: limit / 2, cut: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out := w.deadLetterOutput(&deadLetter{rec: &tc.rec, reason: reason})
			own := reasonCount
			if tc.cut {
				own += 3
			}
			if len(out.Value) != tc.value || len(out.Key) != tc.key || len(out.Headers) != tc.headers+own {
				t.Errorf("value %d, key %d, headers %d; want %d, %d, %d", len(out.Value), len(out.Key), len(out.Headers), tc.value, tc.key, tc.headers+own)
			}
			r := &kgo.Record{Key: out.Key, Value: out.Value}
			for _, h := range out.Headers {
				r.Headers = append(r.Headers, kgo.RecordHeader(h))
			}
			if size := batchHeader + encodedSize(r); size > limit {
				t.Errorf("%d bytes, the topic takes %d", size, limit)
			}
		})
	}
}

// encodedSize is what a record that is alone in its batch takes there before compression, without the batch's header.
func encodedSize(r *kgo.Record) int {
	rec := kmsg.Record{Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kmsg.Header(h))
	}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1) // The length does not count itself, a byte while it is 0.
	return len(rec.AppendTo(nil))
}

func TestBuffer_SharesOutWhatItMayHold(t *testing.T) {
	t.Parallel()
	const kib, mib = 1 << 10, 1 << 20
	for _, tc := range []struct {
		name          string
		share         int64
		backlog, rest int64
	}{
		{"nothing", 0, 256 * kib, 256 * kib},
		{"a byte less than the least", 512*kib - 1, 256 * kib, 256 * kib},
		{"the least", 512 * kib, 256 * kib, 256 * kib},
		{"a byte more than the least", 512*kib + 1, 256 * kib, 256*kib + 1},
		{"a backlog of a quarter at the least", mib, 256 * kib, 768 * kib},
		{"a byte more for the backlog", mib + 4, 256*kib + 1, 768*kib + 3},
		{"the largest backlog", 32 * mib, 8 * mib, 24 * mib},
		{"a backlog that grows no more", 32*mib + 4, 8 * mib, 24*mib + 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := testWorker(func(c *Config) { c.MaxBufferedBytes = 4 * tc.share })
			w.mu.partitions = map[int32]*partition{0: nil, 1: nil, 2: nil, 3: nil}
			w.shareOutLocked()
			if backlog, rest := w.backlogLimit(), w.bufferLimit(); backlog != tc.backlog || rest != tc.rest {
				t.Errorf("%d bytes for the backlog and %d for the rest, want %d and %d", backlog, rest, tc.backlog, tc.rest)
			}
		})
	}
}

func TestRecords_GoWhereTheyBelong(t *testing.T) {
	t.Parallel()
	w := testWorker(nil)
	out := func(key string, partition int32) *statestore.Output {
		o := &statestore.Output{Topic: "events", Value: []byte("v"), Partition: partition, Headers: []statestore.Header{{Key: "a"}, {Key: "b", Value: []byte("1")}}}
		if key != "" {
			o.Key = []byte(key)
		}
		return o
	}
	shares := []*share{
		{p: &partition{id: 1}, batch: &statestore.Batch{Records: []statestore.Record{{Key: "k1", Value: []byte("1")}, {Key: "k2"}}, Outputs: []*statestore.Output{out("s1", -1), out("s1", 5)}}},
		{p: &partition{id: 3}, batch: &statestore.Batch{Records: []statestore.Record{{Key: "k3", Value: []byte("3")}}, Outputs: []*statestore.Output{out("", -1)}}},
	}
	records := newCommitter(w).records(shares).list
	type placed struct {
		Topic     string
		Partition int32
		Key       string
		Headers   int
	}
	var got []placed
	for i, r := range records {
		got = append(got, placed{r.Topic, r.Partition, string(r.Key), len(r.Headers)})
		located, ok := locate(shares, i)
		if located.Output == nil {
			located.Topic = "log"
		}
		if !ok || located.Topic != r.Topic || string(located.Key) != string(r.Key) || (r.Topic == "log" && located.share.p.id != r.Partition) {
			t.Errorf("record %d is located at %+v", i, located)
		}
	}
	if _, ok := locate(shares, len(records)); ok {
		t.Error("a record beyond the last was located")
	}
	want := []placed{
		{"log", 1, "k1", 0},
		{"log", 1, "k2", 0},
		{"log", 3, "k3", 0},
		{"events", murmur2Partition([]byte("s1"), 7), "s1", 2},
		{"events", 5, "s1", 2},
		{"events", 3, "", 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestConfig_NamesEveryFault(t *testing.T) {
	t.Parallel()
	err := Config{Turns: Topic{Name: "t", Partitions: 3}, Changelog: Topic{Name: "c", Partitions: 4}, Protocol: "share", Partitioner: "random"}.withDefaults().validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"must be the same", "a group is needed", `"share" is unknown`, `"random" is unknown`, `topic ""`} {
		if !contains([]string{err.Error()}, part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}

// Only a cycle that was committed leaves its records to the next.
func TestRecords_AreMadeOfWhatACommittedCycleLeft(t *testing.T) {
	t.Parallel()
	c := newCommitter(testWorker(nil))
	cycle := func(keys ...string) []*kgo.Record {
		s := &share{p: &partition{id: 1}, batch: &statestore.Batch{}}
		for _, key := range keys {
			s.batch.Records = append(s.batch.Records, statestore.Record{Key: key, Value: []byte(key)})
			s.batch.Outputs = append(s.batch.Outputs, &statestore.Output{Topic: "events", Key: []byte(key), Partition: 2, Headers: []statestore.Header{{Key: key}}})
		}
		made := c.records([]*share{s})
		for i, r := range made.list {
			key := keys[i%len(keys)]
			if string(r.Key) != key || r.Offset != 0 || (len(r.Headers) == 1) != (r.Topic == "events") || len(r.Headers) == 1 && r.Headers[0].Key != key {
				t.Errorf("record %d is %+v", i, r)
			}
			r.Offset = 7 // As the client does.
		}
		if len(made.list) != 2*len(keys) {
			t.Errorf("%d records of %d keys", len(made.list), len(keys))
		}
		c.room = made
		return made.list
	}
	first := cycle("a", "b", "c")
	if again := cycle("d", "e"); again[0] != first[0] {
		t.Error("what was committed is not used again")
	}
	cycle("f", "g", "h", "i", "j", "k", "l")
	aborted := cycle("m")
	c.room = recordRoom{}
	if fresh := cycle("n"); fresh[0] == aborted[0] || string(aborted[0].Key) != "m" {
		t.Error("what was aborted is used again")
	}
}

func BenchmarkRecords(b *testing.B) {
	w := testWorker(nil)
	var shares []*share
	for p := range int32(4) {
		batch := &statestore.Batch{}
		for range 100 {
			batch.Records = append(batch.Records, statestore.Record{Key: "turn/0123456789", Value: make([]byte, 200)})
			for range 4 {
				batch.Outputs = append(batch.Outputs, &statestore.Output{
					Topic: "events", Key: []byte("session-1234"), Value: make([]byte, 500), Partition: -1,
					Headers: []statestore.Header{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}, {Key: "e"}, {Key: "f"}, {Key: "g"}},
				})
			}
		}
		shares = append(shares, &share{p: &partition{id: p}, batch: batch})
	}
	c := newCommitter(w)
	b.ReportAllocs()
	for b.Loop() {
		c.room = c.records(shares)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/record")
}
