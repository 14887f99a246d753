package txn

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMetadata_ReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		text string
		want Metadata
		ok   bool
	}{
		{
			name: "a running partition", text: "1|app/pod-0/2|ff|17|4096",
			want: Metadata{TxID: "app/pod-0/2", Incarnation: 255, CID: 17, ChangelogNext: 4096}, ok: true,
		},
		{
			name: "a drained partition", text: "1|a/b/0|ffffffffffffffff|18446744073709551615|9223372036854775807|clean",
			want: Metadata{
				TxID: "a/b/0", Incarnation: math.MaxUint64, CID: math.MaxUint64, ChangelogNext: math.MaxInt64, Clean: true,
			}, ok: true,
		},
		{
			name: "a changelog that lost its beginning", text: "1|a/b/0|ff|17|4096|from=9",
			want: Metadata{TxID: "a/b/0", Incarnation: 255, CID: 17, ChangelogNext: 4096, ChangelogFrom: 9}, ok: true,
		},
		{
			name: "the same, drained", text: "1|a/b/0|ff|17|4096|from=9|clean",
			want: Metadata{TxID: "a/b/0", Incarnation: 255, CID: 17, ChangelogNext: 4096, ChangelogFrom: 9, Clean: true}, ok: true,
		},
		{name: "marks in another order", text: "1|a/b/0|ff|17|4096|clean|from=9"},
		{name: "a beginning that goes without saying", text: "1|a/b/0|ff|17|4096|from=0"},
		{name: "a beginning that is no number", text: "1|a/b/0|ff|17|4096|from=x"},
		{name: "nothing"},
		{name: "what another client wrote", text: "consumer-1-5f0c"},
		{name: "a later format", text: "2|a/b/0|ff|17|4096"},
		{name: "no id", text: "1||ff|17|4096"},
		{name: "no position", text: "1|a/b/0|ff|17"},
		{name: "a negative position", text: "1|a/b/0|ff|17|-1"},
		{name: "an incarnation that is no number", text: "1|a/b/0|x|17|4096"},
		{name: "a cid that is no number", text: "1|a/b/0|ff|-17|4096"},
		{name: "a mark that is not known", text: "1|a/b/0|ff|17|4096|dirty"},
		{name: "too many parts", text: "1|a/b/0|ff|17|4096|clean|"},
		{name: "a topic that is gone", text: topicGone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, ok := ParseMetadata(tc.text)
			equal(t, got, tc.want)
			equal(t, ok, tc.ok)
			if ok {
				equal(t, got.String(), tc.text)
			}
		})
	}
}

func FuzzParseMetadata(f *testing.F) {
	f.Add("1|app/pod-0/2|ff|17|4096|clean")
	f.Add("1|a||0|0")
	f.Add("1|app/pod-0/2|ff|17|4096|from=9|clean")
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := ParseMetadata(text)
		if !ok {
			return
		}
		again, ok := ParseMetadata(m.String())
		if !ok || again != m {
			t.Fatalf("got %+v from %q, want %+v", again, m.String(), m)
		}
	})
}

func TestTxID_IsDifferentForEveryPair(t *testing.T) {
	t.Parallel()
	parts := []string{"a", "b", "a/b", "a/", "/a", "a|b", "a%2Fb", "a%", "0", "1/0", "ä", " "}
	seen := map[string][2]string{}
	for _, app := range parts {
		for _, instance := range parts {
			id := Config{App: app, Instance: instance}.txID(0)
			if other, ok := seen[id]; ok {
				t.Errorf("%q and %q have one id %q", other, [2]string{app, instance}, id)
			}
			seen[id] = [2]string{app, instance}
			if m, ok := ParseMetadata(Metadata{TxID: id}.String()); !ok || m.TxID != id {
				t.Errorf("%q does not survive the metadata", id)
			}
		}
	}
	equal(t, Config{App: "lathe", Instance: "lathe-worker-0"}.txID(2), "lathe/lathe-worker-0/2")
}

// TestJudge_DecidesFromTheOffsets has one partition in each possible state beside another.
func TestJudge_DecidesFromTheOffsets(t *testing.T) {
	t.Parallel()
	const ours, theirs = 7, 8
	ring := &Ring{cfg: Config{Incarnation: ours}, slots: []*slot{{txID: "a/b/0"}, {txID: "a/b/1"}}}
	mine := Metadata{TxID: "a/b/0", Incarnation: ours, CID: 5, ChangelogNext: 9}.String()
	before := Metadata{TxID: "a/b/1", Incarnation: ours, CID: 4, ChangelogNext: 7}.String()
	sameCID := Metadata{TxID: "a/b/0", Incarnation: theirs, CID: 5, ChangelogNext: 9}.String()
	secondOtherSlot := Metadata{TxID: "a/b/1", Incarnation: theirs, CID: 2, ChangelogNext: 9}.String()
	worker := Metadata{TxID: "a/c/0", Incarnation: theirs, CID: 5, ChangelogNext: 9}.String()
	strange := Metadata{TxID: "a/b/0", Incarnation: ours, CID: 3, ChangelogNext: 9}.String()
	for _, tc := range []struct {
		name     string
		baseline string
		now      [2]string
		want     finding
	}{
		{"committed", before, [2]string{mine, mine}, finding{committed: true}},
		{"not committed", before, [2]string{before, before}, finding{}},
		{"the first cycle ever, not committed", "", [2]string{"", ""}, finding{}},
		{"committed, then one taken over", before, [2]string{mine, worker}, finding{committed: true, lost: []int32{1}}},
		{"not committed, one taken over", before, [2]string{before, worker}, finding{lost: []int32{1}}},
		{"all taken over", before, [2]string{worker, worker}, finding{lost: []int32{0, 1}}},
		{"taken over by a tool that writes no metadata", before, [2]string{before, ""}, finding{lost: []int32{1}}},
		{"the topic is gone", before, [2]string{topicGone, topicGone}, finding{lost: []int32{0, 1}}},
		{"a second process with the same cid", before, [2]string{sameCID, sameCID}, finding{second: true, lost: []int32{0, 1}}},
		{"a second process in one partition", before, [2]string{before, secondOtherSlot}, finding{second: true, lost: []int32{1}}},
		{"the predecessor is the baseline", sameCID, [2]string{sameCID, sameCID}, finding{}},
		{"an older cycle of ours that nobody remembers", before, [2]string{before, strange}, finding{lost: []int32{1}}},
		{
			"committed in one and unchanged in the other", before,
			[2]string{mine, before},
			finding{committed: true, torn: []int32{1}, lost: []int32{1}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := &attempt{
				ring:     ring,
				cycle:    &Cycle{Offsets: []Offset{{Partition: 0, Baseline: tc.baseline}, {Partition: 1, Baseline: tc.baseline}}},
				metadata: map[int32]string{0: mine, 1: mine},
			}
			got := a.judge(map[int32]string{0: tc.now[0], 1: tc.now[1]})
			equal(t, got.committed, tc.want.committed)
			equal(t, got.second, tc.want.second)
			equal(t, got.lost, tc.want.lost)
			equal(t, got.torn, tc.want.torn)
		})
	}
}

func TestGuard_CountsOnlyTheLastMinute(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var g guard
	for i := range 10 {
		if g.fence(now.Add(time.Duration(i) * fenceWindow / 2)) {
			t.Fatalf("fence %d trips the guard, two a minute are allowed", i)
		}
	}
	now = now.Add(time.Hour)
	for range maxFences {
		if g.fence(now) {
			t.Fatal("too early")
		}
	}
	if !g.fence(now) {
		t.Fatal("one too many is let through")
	}
	g.forget()
	if g.fence(now) {
		t.Fatal("what was forgotten counts")
	}
}

func TestBackoff_DoublesToItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{First: busyBackoff, Limit: busyBackoffLimit}
		for _, want := range []int64{5, 10, 20, 40, 50, 50} {
			began := time.Now()
			must(t, b.Wait(t.Context()))
			equal(t, time.Since(began).Milliseconds(), want)
		}
	})
}

func TestPartitions_HoldEachOnceAndOnlyTheLastCycles(t *testing.T) {
	t.Parallel()
	var p partitions
	collect := func() map[string][]int32 {
		got := map[string][]int32{}
		p.each(func(topic string, list []int32) { got[topic] = list })
		return got
	}
	p.of([]*kgo.Record{{Topic: "a", Partition: 3}, {Topic: "b"}, {Topic: "a", Partition: 3}, {Topic: "a", Partition: 1}})
	equal(t, collect(), map[string][]int32{"a": {3, 1}, "b": {0}})
	p.of([]*kgo.Record{{Topic: "a", Partition: 1}, {Topic: "c", Partition: 7}})
	equal(t, collect(), map[string][]int32{"a": {1}, "c": {7}})
}

func TestPartitions_KnowWhetherTheyHaveSeveralLeaders(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		leaders []int32
		want    bool
	}{
		{"one", []int32{2, 2, 2}, false},
		{"two", []int32{2, 2, 1}, true},
		{"one is not known", []int32{2, -1, 2}, true},
		{"none is known", []int32{-1}, true},
		{"no partition", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var records []*kgo.Record
			for i := range tc.leaders {
				records = append(records, &kgo.Record{Topic: "a", Partition: int32(i)})
			}
			var p partitions
			p.of(records)
			equal(t, p.manyLeaders(func(_ string, partition int32) int32 { return tc.leaders[partition] }), tc.want)
		})
	}
}

// TestBatch_WaitsForRecordsThatWereNeverBuffered: the client calls the promise of a record that it refuses at once on
// another goroutine, which Flush does not wait for.
func TestBatch_WaitsForRecordsThatWereNeverBuffered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		errRefused := errors.New("refused")
		records := []*kgo.Record{{}, {}}
		b := newBatch(len(records))
		b.promise(records[0], nil)
		go func() {
			time.Sleep(time.Second)
			b.promise(records[1], errRefused)
		}()
		r, err := b.wait(t.Context())
		if !errors.Is(err, errRefused) || slices.Index(records, r) != 1 {
			t.Fatalf("got %v, want %v of record 1", err, errRefused)
		}
		equal(t, b.acked(len(records)), true)
	})
}

// TestClassify_NamesWhatAPersonHasToRepair: these errors stay until rights or settings change, so each names its resource and none
// costs the producer.
func TestClassify_NamesWhatAPersonHasToRepair(t *testing.T) {
	t.Parallel()
	about := subject{topic: "orders", txID: "a/b/0", group: "shop"}
	for _, tc := range []struct {
		err  *kerr.Error
		want string
	}{
		{kerr.TransactionalIDAuthorizationFailed, "transactional id a/b/0"},
		{kerr.InvalidTransactionTimeout, "transaction timeout of transactional id a/b/0"},
		{kerr.GroupAuthorizationFailed, "group shop"},
		{kerr.OffsetMetadataTooLarge, "offset metadata of group shop"},
		{kerr.TopicAuthorizationFailed, "topic orders"},
		{kerr.ClusterAuthorizationFailed, "cluster"},
		{kerr.SaslAuthenticationFailed, "cluster"},
		{kerr.UnsupportedSaslMechanism, "cluster"},
		{kerr.IllegalSaslState, "cluster"},
		{kerr.UnsupportedVersion, "cluster"},
		{kerr.UnsupportedForMessageFormat, "cluster"},
	} {
		v, err := classify(fmt.Errorf("flush: %w", tc.err), about)
		refused, ok := errors.AsType[*ConfigError](err)
		if v != abortClean || !ok || refused.Resource != tc.want || !errors.Is(err, ErrConfig) || !errors.Is(err, tc.err) {
			t.Errorf("%s: got verdict %d, %v; want a refusal of %s", tc.err.Message, v, err, tc.want)
		}
	}
	for _, passes := range []*kerr.Error{kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.ProducerFenced} {
		if v, err := classify(passes, about); v != abortReplace || !errors.Is(err, ErrTransient) {
			t.Errorf("%s: got verdict %d, %v; want the producer replaced", passes.Message, v, err)
		}
	}
}
