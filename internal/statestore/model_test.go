package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// view is what a reader should see: keys and logs as a plain map has them.
type view struct {
	keys map[string]string
	logs map[string]string
}

func newView() view { return view{keys: map[string]string{}, logs: map[string]string{}} }

func (v view) clone() view { return view{keys: maps.Clone(v.keys), logs: maps.Clone(v.logs)} }

func (v view) apply(e *Effect) {
	for _, m := range e.Mutations {
		switch m.Op {
		case OpSet:
			v.keys[m.Key] = string(m.Value)
		case OpDelete:
			delete(v.keys, m.Key)
		case OpAppend:
			v.logs[m.Key] += string(m.value())
		case OpDrop:
			delete(v.logs, m.Key)
		case OpNote: // Seen by nobody who reads.
		}
	}
}

// model runs one partition beside a map.
type model struct {
	t         *testing.T
	rnd       *rand.Rand
	store     *Store
	part      *Partition
	committed view
	queue     []*Effect
	folded    map[string]string
	// generation numbers the logs, because a dropped log is never used again.
	generation [3]int
	next       int
	names      map[*Effect]string
	told       settlements
	cid        int64
}

const modelRecordBytes = 64

// Random effects, commits, aborts, losses of the partition and reads give at every step what a map gives, and Pebble is at
// every step the fold of the changelog.
func TestPartition_AgreesWithAMapAfterEveryStep(t *testing.T) {
	t.Parallel()
	rnd := newRand(t)
	for range 8 {
		s := openStore(t, Config{RecordBytes: modelRecordBytes})
		m := &model{t: t, rnd: rnd, store: s, part: attach(s, 7), committed: newView(), folded: map[string]string{}, names: map[*Effect]string{}}
		for range 300 {
			m.step()
			m.check()
		}
		m.part.Detach()
	}
}

func (m *model) step() {
	switch n := m.rnd.IntN(100); {
	case n < 56:
		m.add()
	case n < 60:
		m.drop()
	case n < 80:
		m.take(true)
	case n < 95:
		m.take(false)
	case n < 98:
		m.part.Forget(m.log(m.rnd.IntN(len(m.generation))))
	default:
		m.reattach()
	}
}

func (m *model) log(slot int) string { return fmt.Sprintf("log%d.%d", slot, m.generation[slot]) }

func (m *model) add() {
	m.next++
	name := fmt.Sprintf("e%d", m.next)
	e := &Effect{Offset: NoOffset, Settled: m.told.of(name)}
	if m.rnd.IntN(3) == 0 {
		e.Offset = int64(m.next)
	}
	for range m.rnd.IntN(4) {
		e.Mutations = append(e.Mutations, m.mutation())
	}
	for i := range m.rnd.IntN(3) {
		e.Outputs = append(e.Outputs, Output{Topic: "events", Value: fmt.Appendf(nil, "%s/%d", name, i)})
	}
	if owner := m.rnd.IntN(4); owner > 0 {
		e.Owner = owner
	}
	m.names[e] = name
	add(m.t, m.part, e)
	m.queue = append(m.queue, e)
}

// drop takes the effects of one or two owners back.
func (m *model) drop() {
	owners := []any{1 + m.rnd.IntN(3), 1 + m.rnd.IntN(3)}
	m.told.told = nil
	var kept, want []*Effect
	for _, e := range m.queue {
		if e.Owner != nil && slices.Contains(owners, e.Owner) {
			want = append(want, e)
		} else {
			kept = append(kept, e)
		}
	}
	if got := m.part.Drop(owners...); !slices.Equal(got, want) {
		m.t.Errorf("dropped %d effects, want %d", len(got), len(want))
	}
	if told := m.namesOf(want, "dropped"); !slices.Equal(m.told.told, told) {
		m.t.Errorf("on drop the effects were told %v, want %v", m.told.told, told)
	}
	m.queue = kept
	for i := range m.generation { // A log whose drop was dropped is there again; leave it alone.
		m.generation[i]++
	}
}

func (m *model) namesOf(effects []*Effect, what string) []string {
	var out []string
	for _, e := range effects {
		out = append(out, m.names[e]+" "+what)
	}
	return out
}

func (m *model) mutation() Mutation {
	key := fmt.Sprintf("k%d", m.rnd.IntN(6))
	slot := m.rnd.IntN(len(m.generation))
	switch m.rnd.IntN(8) {
	case 0, 1, 2:
		return set(key, strconv.Itoa(m.rnd.IntN(1000)))
	case 3:
		return del(key)
	case 4:
		d := drop(m.log(slot))
		m.generation[slot]++
		return d
	}
	return app(m.log(slot), strings.Repeat(string(rune('a'+m.rnd.IntN(26))), 1+m.rnd.IntN(modelRecordBytes-1)))
}

func (m *model) take(committed bool) {
	maxBytes, maxRecords := m.rnd.IntN(2000), m.rnd.IntN(20)
	b, err := m.part.Take(maxBytes, maxRecords)
	if err != nil {
		m.t.Fatalf("Take: %v", err)
	}
	if len(m.queue) == 0 {
		if b != nil {
			m.t.Fatalf("Take of nothing gave %d effects", b.Effects)
		}
		return
	}
	m.checkBatch(b, maxBytes, maxRecords)
	if !committed {
		return
	}
	m.cid++
	m.told.told = nil
	commit(m.t, m.store, b, position(m.cid))
	fold(m.folded, b.Records)
	for _, e := range m.queue[:b.Effects] {
		m.committed.apply(e)
	}
	want := m.namesOf(m.queue[:b.Effects], "committed")
	if !slices.Equal(m.told.told, want) {
		m.t.Errorf("on commit the effects were told %v, want %v", m.told.told, want)
	}
	m.queue = m.queue[b.Effects:]
}

// checkBatch checks a batch against the effects that it should hold.
func (m *model) checkBatch(b *Batch, maxBytes, maxRecords int) {
	m.t.Helper()
	var outputs, wantOutputs []string
	var offsets []int64
	size, records := 0, 0
	for _, e := range m.queue[:b.Effects] {
		size, records = size+e.size(), records+e.records()
		for i := range e.Outputs {
			wantOutputs = append(wantOutputs, string(e.Outputs[i].Value))
		}
		if e.Offset != NoOffset {
			offsets = append(offsets, e.Offset)
		}
	}
	for _, o := range b.Outputs {
		outputs = append(outputs, string(o.Value))
	}
	if b.Effects > 1 && (size > maxBytes || records > maxRecords) {
		m.t.Errorf("a batch of %d effects has %d bytes and %d records, more than %d and %d", b.Effects, size, records, maxBytes, maxRecords)
	}
	if !slices.Equal(outputs, wantOutputs) || !slices.Equal(b.Offsets, offsets) {
		m.t.Errorf("outputs %v and offsets %v, want %v and %v", outputs, b.Offsets, wantOutputs, offsets)
	}
	m.checkRecords(b)
}

func (m *model) checkRecords(b *Batch) {
	m.t.Helper()
	seen := make(map[string]bool)
	for _, r := range b.Records {
		if seen[r.Key] {
			m.t.Errorf("the batch has two records of %s", r.Key)
		}
		seen[r.Key] = true
		if _, ok := m.folded[r.Key]; r.Value == nil && !ok {
			m.t.Errorf("the batch has a tombstone of %s, which was never committed", r.Key)
		}
		if len(r.Value) > modelRecordBytes {
			m.t.Errorf("the record %s has %d bytes, more than the limit", r.Key, len(r.Value))
		}
	}
}

// reattach loses the partition and gets it again: only what was committed is left.
func (m *model) reattach() {
	old := m.part
	m.told.told = nil
	want := m.namesOf(m.queue, "gone")
	old.Detach()
	if !slices.Equal(m.told.told, want) {
		m.t.Errorf("on detach the effects were told %v, want %v", m.told.told, want)
	}
	if err := old.Add(effect(set("k0", "late"))); !errors.Is(err, ErrGone) {
		m.t.Errorf("Add after Detach gives %v, want ErrGone", err)
	}
	m.queue = nil
	for i := range m.generation { // A log that was dropped without a commit is there again; leave it alone.
		m.generation[i]++
	}
	m.part = attach(m.store, 7)
}

func (m *model) check() {
	m.t.Helper()
	want := m.committed.clone()
	for _, e := range m.queue {
		want.apply(e)
	}
	m.checkKeys(want)
	for slot := range m.generation {
		log := m.log(slot)
		parts, err := m.part.Log(log)
		if err != nil {
			m.t.Fatalf("Log(%s): %v", log, err)
		}
		if got := string(bytes.Join(parts, nil)); got != want.logs[log] {
			m.t.Errorf("Log(%s) = %q, want %q", log, got, want.logs[log])
		}
	}
	if got := committedState(m.t, m.store, 7); !maps.Equal(got, m.folded) {
		m.t.Errorf("Pebble is not the fold of the changelog (-changelog +pebble):\n%s", cmp.Diff(m.folded, got))
	}
	if pos, found, err := m.store.Position(7); err != nil || found != (m.cid > 0) || found && pos != position(m.cid) {
		m.t.Errorf("Position = %+v, %t, %v, want that of cycle %d", pos, found, err, m.cid)
	}
	if n, size := m.part.Pending(); n != len(m.queue) || (n == 0) != (size == 0) {
		m.t.Errorf("Pending = %d effects, %d bytes, want %d effects", n, size, len(m.queue))
	}
	if m.t.Failed() {
		m.t.FailNow()
	}
}

func (m *model) checkKeys(want view) {
	m.t.Helper()
	for i := range 6 {
		key := fmt.Sprintf("k%d", i)
		got, found, err := m.part.Get(key)
		v, ok := want.keys[key]
		if err != nil || found != ok || found && string(got) != v {
			m.t.Errorf("Get(%s) = %q, %t, %v, want %q, %t", key, got, found, err, v, ok)
		}
	}
	var got []string
	err := m.part.Scan("k", func(key string, value []byte) error {
		got = append(got, key+string(value))
		return nil
	})
	var all []string
	for _, key := range slices.Sorted(maps.Keys(want.keys)) {
		all = append(all, key+want.keys[key])
	}
	if err != nil || !slices.Equal(got, all) {
		m.t.Errorf("Scan = %q, %v, want %q", got, err, all)
	}
}
