package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

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
	return b.ofTurns(all)
}

// stable is the same as the next owner would see it: with what was committed a moment ago, whose markers are still being written.
func (b *bed) stable() (out map[int32]kadm.Offset) {
	b.t.Helper()
	b.eventually("the offsets are stable", func() bool {
		all, err := b.admin.FetchOffsets(kadm.RequireStable(b.t.Context()), b.name)
		out = b.ofTurns(all)
		return err == nil && all.Error() == nil
	})
	return out
}

func (b *bed) ofTurns(all kadm.OffsetResponses) map[int32]kadm.Offset {
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
	return kafkatest.Fold(b.read(b.changelog.Name), bedPartitions)
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
