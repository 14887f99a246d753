package statestore

import (
	"slices"
	"strings"
	"testing"
)

// own makes an effect somebody's.
func own(owner any, e *Effect) *Effect {
	e.Owner = owner
	return e
}

// A turn's record is refused: what it has not committed goes, what it has committed stays, and others do not notice.
func TestDrop_LeavesWhatIsCommittedAndWhatIsOthers(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	defer p.Detach()
	add(t, p, own("a", effect(app("ja", "1"), set("shared", "a1"))))
	add(t, p, own("b", effect(app("jb", "1"))))
	commitAll(t, s, p)
	var told settlements
	add(t, p, own("a", &Effect{Mutations: []Mutation{app("ja", "2"), set("shared", "a2")}, Offset: NoOffset, Settled: told.of("a")}))
	add(t, p, own("b", &Effect{Mutations: []Mutation{app("jb", "2"), set("b", "2")}, Offset: 7, Settled: told.of("b")}))
	add(t, p, own("a", effect(drop("ja"), set("shared", "a3"), set("ta", "ended"))))
	add(t, p, effect(set("nobody", "1")))

	if owners := p.Owners(); !slices.Equal(owners, []any{"a", "b"}) {
		t.Errorf("owners %v", owners)
	}
	if n := len(p.Drop("a")); n != 2 {
		t.Errorf("dropped %d effects, want 2", n)
	}
	for key, want := range map[string]string{"shared": "a1", "b": "2", "nobody": "1", "ta": ""} {
		got, found, err := p.Get(key)
		if err != nil || found != (want != "") || found && string(got[1:]) != want {
			t.Errorf("%s is %q, %t, %v, want %q", key, got, found, err, want)
		}
	}
	if parts, err := p.Log("ja"); err != nil || len(parts) != 1 || string(parts[0]) != "1" {
		t.Errorf("the log is %q, %v, want what is committed", parts, err)
	}
	add(t, p, own("a", effect(app("ja", "3"))))
	got := showAll(commitAll(t, s, p))
	slices.Sort(got)
	if want := []string{"b=2", "ja/00000001=3", "jb/00000001=2", "nobody=1"}; !slices.Equal(got, want) {
		t.Errorf("the next cycle wrote %q, want %q", got, want)
	}
	if want := []string{"a dropped", "b committed"}; !slices.Equal(told.told, want) {
		t.Errorf("effects were told %q, want %q", told.told, want)
	}
	if n, size := p.Pending(); n != 0 || size != 0 {
		t.Errorf("%d effects and %d bytes are left", n, size)
	}
}

func TestBatch_FindsTheEffectOfEachRecord(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{RecordBytes: 16})
	p := attach(s, 1)
	defer p.Detach()
	add(t, p, own("old", effect(app("gone", "1"))))
	commitAll(t, s, p)
	long := strings.Repeat("x", 15)
	add(t, p, own("first", &Effect{Mutations: []Mutation{set("k", "1"), app("j", long)}, Outputs: []Output{{}, {}}, Offset: NoOffset}))
	add(t, p, own("second", &Effect{Mutations: []Mutation{set("k", "2"), app("j", "y"), app("j", "z")}, Outputs: []Output{{}}, Offset: NoOffset}))
	add(t, p, own("third", effect(drop("gone"))))
	b := take(t, p)
	b.Set("cycle", stored("1"))
	want := map[string]any{"k": "second", "j/00000000": "first", "j/00000001": "second", "gone/00000000": "third", "cycle": nil}
	for i, r := range b.Records {
		var owner any
		if e := b.EffectOfRecord(i); e != nil {
			owner = e.Owner
		}
		if w, ok := want[r.Key]; !ok || owner != w {
			t.Errorf("record %s is %v's, want %v", r.Key, owner, w)
		}
	}
	for i, w := range []any{"first", "first", "second"} {
		if e := b.EffectOfOutput(b.Outputs[i]); e == nil || e.Owner != w {
			t.Errorf("output %d is of %+v, want %v's", i, e, w)
		}
	}
	if e := b.EffectOfOutput(&Output{}); e != nil {
		t.Errorf("a stranger's output is of %+v", e)
	}
}

// The broker refuses a record of a journal that holds many small facts, none of which is too large alone.
func TestSplit_MakesJoinedRecordsSmallerUntilEachHasOneChunk(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{RecordBytes: 64})
	p := attach(s, 1)
	defer p.Detach()
	for _, chunk := range []string{"aaaa", "bbbb", "cccc", "dddddddddd"} {
		add(t, p, effect(app("j", chunk)))
	}
	splits := 0
	for {
		b := take(t, p)
		refused := slices.IndexFunc(b.Records, func(r Record) bool { return len(r.Value) > 8 })
		if !p.Split(b, refused) {
			if got := string(b.Records[refused].Value[1:]); got != "dddddddddd" {
				t.Errorf("the record %q is not split", got)
			}
			break
		}
		if splits++; splits > 6 {
			t.Fatal("no end of splitting")
		}
	}
	got := showAll(commitAll(t, s, p))
	if want := []string{"j/00000000=aaaa", "j/00000001=bbbb", "j/00000002=cccc", "j/00000003=dddddddddd"}; !slices.Equal(got, want) {
		t.Errorf("the cycle wrote %q, want %q", got, want)
	}
}
