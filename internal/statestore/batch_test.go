package statestore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each case commits cycles one after another; want are the changelog records of each.
func TestTake_FoldsACycleIntoOneRecordPerKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40)
	tests := []struct {
		name   string
		cycles [][]*Effect
		want   [][]string
	}{
		{
			name:   "the last value of a key stands",
			cycles: [][]*Effect{{effect(set("a", "1")), effect(set("b", "1"), set("a", "2"))}},
			want:   [][]string{{"a=2", "b=1"}},
		},
		{
			name:   "a key that comes and goes in one cycle leaves nothing",
			cycles: [][]*Effect{{effect(set("a", "1")), effect(del("a"))}},
			want:   [][]string{nil},
		},
		{
			name:   "a delete of a key that was never there vanishes",
			cycles: [][]*Effect{{effect(del("a"), set("b", "1"))}},
			want:   [][]string{{"b=1"}},
		},
		{
			name:   "a committed key is deleted by a tombstone",
			cycles: [][]*Effect{{effect(set("a", "1"))}, {effect(set("a", "2"), del("a"))}},
			want:   [][]string{{"a=1"}, {"a deleted"}},
		},
		{
			name:   "a deleted key may be set again",
			cycles: [][]*Effect{{effect(set("a", "1"))}, {effect(del("a")), effect(set("a", "2"))}},
			want:   [][]string{{"a=1"}, {"a=2"}},
		},
		{
			name:   "a turn that starts and ends in one cycle writes no journal",
			cycles: [][]*Effect{{effect(app("j", "1")), effect(app("j", "2")), effect(app("j", "3"), drop("j"), set("t", "done"))}},
			want:   [][]string{{"t=done"}},
		},
		{
			name:   "the facts of one cycle are one journal record",
			cycles: [][]*Effect{{effect(app("j", "1")), effect(app("j", "2"))}, {effect(app("j", "3"), app("j", "4"))}},
			want:   [][]string{{"j/00000000=12"}, {"j/00000001=34"}},
		},
		{
			name:   "facts beyond the record limit are further records, none of them cut",
			cycles: [][]*Effect{{effect(app("j", long)), effect(app("j", "y")), effect(app("j", long))}, {effect(app("j", "z"))}},
			want:   [][]string{{"j/00000000=" + long + "y", "j/00000001=" + long}, {"j/00000002=z"}},
		},
		{
			name:   "a chunk of exactly the limit is one record",
			cycles: [][]*Effect{{effect(app("j", strings.Repeat("x", 63)), app("j", "y"))}},
			want:   [][]string{{"j/00000000=" + strings.Repeat("x", 63), "j/00000001=y"}},
		},
		{
			name:   "the end of a turn deletes each record of its journal and writes none",
			cycles: [][]*Effect{{effect(app("j", long)), effect(app("j", long))}, {effect(app("j", "3"))}, {effect(app("j", "4"), drop("j"))}},
			want: [][]string{
				{"j/00000000=" + long, "j/00000001=" + long},
				{"j/00000002=3"},
				{"j/00000000 deleted", "j/00000001 deleted", "j/00000002 deleted"},
			},
		},
		{
			name:   "journals of several turns stay apart",
			cycles: [][]*Effect{{effect(app("j1", "a")), effect(app("j2", "b")), effect(app("j1", "c"))}, {effect(drop("j1")), effect(app("j2", "d"))}},
			want:   [][]string{{"j1/00000000=ac", "j2/00000000=b"}, {"j1/00000000 deleted", "j2/00000001=d"}},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Config{RecordBytes: 64})
			p := attach(s, 1)
			for i, effects := range tc.cycles {
				for _, e := range effects {
					add(t, p, e)
				}
				got := showAll(commitAll(t, s, p))
				slices.Sort(got)
				if !slices.Equal(got, tc.want[i]) {
					t.Errorf("cycle %d wrote %q, want %q", i, got, tc.want[i])
				}
			}
			p.Detach()
		})
	}
}

// A cycle that was aborted leaves its effects where they were: the next one has them again, whole and in order, with what came
// since.
func TestTake_HasTheEffectsOfAnAbortedCycleAgain(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	var told settlements
	for i := range 3 {
		name := fmt.Sprintf("e%d", i)
		add(t, p, &Effect{
			Mutations: []Mutation{set(name, "v"), app("j", name)}, Outputs: []Output{{Value: []byte(name)}}, Offset: int64(10 + i), Settled: told.of(name),
		})
	}
	first, err := p.Take(1, 1)
	if err != nil || first.Effects != 1 {
		t.Fatalf("Take of one = %+v, %v", first, err)
	}
	add(t, p, &Effect{Mutations: []Mutation{set("e3", "v"), app("j", "e3")}, Outputs: []Output{{Value: []byte("e3")}}, Offset: 13, Settled: told.of("e3")})

	again := take(t, p)
	got, want := showAll(again.Records), []string{"e0=v", "e1=v", "e2=v", "e3=v", "j/00000000=e0e1e2e3"}
	if !slices.Equal(got, want) || !slices.Equal(again.Offsets, []int64{10, 11, 12, 13}) || len(again.Outputs) != 4 {
		t.Errorf("the next batch has %q, offsets %v and %d outputs, want %q, 10 to 13 and 4", got, again.Offsets, len(again.Outputs), want)
	}
	if len(told.told) != 0 {
		t.Errorf("effects were told %q before anything was committed", told.told)
	}
	commit(t, s, again, position(1))
	if want := []string{"e0 committed", "e1 committed", "e2 committed", "e3 committed"}; !slices.Equal(told.told, want) {
		t.Errorf("effects were told %q, want %q", told.told, want)
	}
	if b := take(t, p); b != nil {
		t.Errorf("after the commit a batch of %d effects is left", b.Effects)
	}
	p.Detach()
}

func TestTake_MakesWhatIsLateOnlyWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	gone, kept, read := &late{text: "gone"}, &late{text: "kept"}, &late{text: "read"}
	appends := func(log string, l *late) *Effect { return effect(Mutation{Op: OpAppend, Key: log, Late: l}) }
	add(t, p, appends("ended", gone))
	add(t, p, appends("goes on", kept))
	add(t, p, appends("resumed", read))
	_, before := p.Pending()
	add(t, p, effect(drop("ended")))
	if got, err := p.Log("resumed"); err != nil || len(got) != 1 || string(got[0]) != "read" {
		t.Errorf("the log is %q, %v", got, err)
	}
	first, again := take(t, p), take(t, p) // The first cycle is aborted.
	if diff := slices.Compare(showAll(first.Records), showAll(again.Records)); diff != 0 {
		t.Errorf("first %q, then %q", showAll(first.Records), showAll(again.Records))
	}
	if got := showAll(again.Records); !slices.Equal(got, []string{"goes on/00000000=kept", "resumed/00000000=read"}) {
		t.Errorf("records %q", got)
	}
	for l, want := range map[*late]int64{gone: 0, kept: 1, read: 1} {
		if n := l.made.Load(); n != want {
			t.Errorf("%q was made %d times, want %d", l.text, n, want)
		}
	}
	if least := int64(gone.Size() + kept.Size() + read.Size()); before < least {
		t.Errorf("%d bytes wait, want at least %d", before, least)
	}
	commit(t, s, again, position(1))
}

func TestTake_TakesAnEffectThatIsLargerThanTheCycle(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	add(t, p, effect(set("a", strings.Repeat("x", 1000)), set("b", "1")))
	add(t, p, effect(set("c", "1")))
	b, err := p.Take(10, 1)
	if err != nil || b == nil || b.Effects != 1 || len(b.Records) != 2 {
		t.Errorf("Take = %+v, %v, want the first effect whole and alone", b, err)
	}
	p.Detach()
}

// The turn was lost while its transaction was on its way: what it wrote is in the changelog, and Pebble is left where it was
// so that a restore can tell.
func TestCommit_LeavesOutAPartitionThatIsGone(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	var told settlements
	gone, here := attach(s, 1), attach(s, 2)
	add(t, gone, &Effect{Mutations: []Mutation{set("a", "1")}, Offset: NoOffset, Settled: told.of("gone's")})
	add(t, here, &Effect{Mutations: []Mutation{set("a", "1")}, Offset: NoOffset, Settled: told.of("here's")})
	batches := []Settlement{{Batch: take(t, gone), Position: position(5)}, {Batch: take(t, here), Position: position(6)}}
	gone.Detach()
	commitCycle(t, s, batches...)
	if want := []string{"gone's gone", "here's committed"}; !slices.Equal(told.told, want) {
		t.Errorf("effects were told %q, want %q", told.told, want)
	}
	if _, found, err := s.Position(1); found || err != nil || len(committedState(t, s, 1)) != 0 {
		t.Errorf("the partition that is gone was written: position found %t, %v", found, err)
	}
	if pos, found, err := s.Position(2); !found || err != nil || pos != position(6) {
		t.Errorf("Position(2) = %+v, %t, %v", pos, found, err)
	}
	here.Detach()
}

// Those who wait are told before the effects are applied: what they read then must not depend on it, and the partition may be gone
// before it is.
func TestBatch_TellsWhoWaitsOnceAndBeforeTheEffectsAreApplied(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	var told settlements
	add(t, p, &Effect{Mutations: []Mutation{set("a", "1"), app("j", "x")}, Offset: NoOffset, Settled: told.of("first")})
	b := take(t, p)
	add(t, p, &Effect{Mutations: []Mutation{set("a", "2")}, Offset: NoOffset, Settled: told.of("second")})
	b.Waiting().Tell()
	if v, found, err := p.Get("a"); err != nil || !found || string(v) != string(stored("2")) {
		t.Errorf("Get = %q, %t, %v before the effect is applied", v, found, err)
	}
	if log, err := p.Log("j"); err != nil || len(log) != 1 || string(log[0]) != "x" {
		t.Errorf("Log = %q, %v before the effect is applied", log, err)
	}
	if n, _ := p.Pending(); n != 2 {
		t.Errorf("%d effects are not applied, want both", n)
	}
	p.Detach()
	if err := s.Commit([]Settlement{{Batch: b, Position: position(5)}}); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	if w := b.Waiting(); len(w) != 0 {
		t.Errorf("%d wait for a batch of a partition that is gone", len(w))
	}
	if want := []string{"first committed", "second gone"}; !slices.Equal(told.told, want) {
		t.Errorf("effects were told %q, want %q", told.told, want)
	}
}

func TestBatch_SetAddsARecordOfTheCycleItself(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	add(t, p, effect(set("a", "1")))
	b := take(t, p)
	b.Set("offsets", stored("5"))
	if b.Partition() != p {
		t.Errorf("Partition is not the one the batch was taken from")
	}
	commit(t, s, b, position(1))
	if got := committedState(t, s, 1)["offsets"]; got != string(stored("5")) {
		t.Errorf("the record of the cycle is %q in Pebble", got)
	}
	p.Detach()
}

func TestAttach_NotifiesOfEveryEffectAndOfItsUrgency(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	var got []bool
	p := s.Attach(1, func(urgent bool) { got = append(got, urgent) })
	add(t, p, effect(set("a", "1")))
	add(t, p, &Effect{Offset: 3, Urgent: true})
	p.Detach()
	if p.Add(effect()) == nil {
		t.Errorf("Add after Detach has no error")
	}
	if !slices.Equal(got, []bool{false, true}) {
		t.Errorf("notified %v, want [false true]", got)
	}
}

func TestPartition_IsGoneForEveryReaderAfterDetach(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	add(t, p, effect(set("a", "1"), app("j", "1")))
	p.Detach()
	_, _, getErr := p.Get("a")
	_, logErr := p.Log("j")
	scanErr := p.Scan("a", func(string, []byte) error { return nil })
	for name, err := range map[string]error{"Get": getErr, "Log": logErr, "Scan": scanErr} {
		if !isGone(err) {
			t.Errorf("%s gives %v, want ErrGone", name, err)
		}
	}
	if b, err := p.Take(1, 1); b != nil || err != nil {
		t.Errorf("Take = %v, %v, want nothing", b, err)
	}
	p.Forget("j")
}
