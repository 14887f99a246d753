package dedupe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// A turn alone is encoded only when a cycle takes it; what the cycle then writes is what it would have been at once.
func TestLate_FactsAreEncodedAsIfAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	in := askIn("t1", "t1", "hi", 1)
	in.Lone, in.Event.Metadata = true, nil
	j := b.accept(in)
	c := call(lookup(), 0, 0, `{}`)
	facts := []fact.Fact{responded(0, `{}`), began(c), finished(c, `"r"`), responded(1)}
	for _, f := range facts {
		b.add(j, f)
	}
	batch, err := b.part.Take(1<<30, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	seq := int64(0)
	for _, f := range append([]fact.Fact{j.Accepted()}, facts...) {
		frame, err := b.store.codec.facts.Frame(fact.Frame{Seq: seq, Fact: f}, func(n int) []byte { return make([]byte, 0, n) })
		if err != nil {
			t.Fatal(err)
		}
		want, seq = append(want, frame...), seq+f.Events()
	}
	found := false
	for _, r := range batch.Records {
		if strings.HasPrefix(r.Key, journalPrefix) {
			found = true
			if !bytes.Equal(r.Value[1:], want) {
				t.Errorf("the journal has\n%x\nnot\n%x", r.Value[1:], want)
			}
		}
	}
	if !found {
		t.Error("there is no journal")
	}
}

// What somebody waits for, what a session keeps, and what may pass the limit is encoded at once.
func TestLate_OnlyWhatMayNeverBeNeeded(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *Config) { c.RecordBytes = 4000 })
	lone := askIn("t1", "t1", "hi", 1)
	lone.Lone = true
	alone, named := b.accept(lone), b.accept(askIn("s1", "t2", "hi", 2))
	long := responded(0)
	long.Text = strings.Repeat("x", 4000)
	for name, tc := range map[string]struct {
		j    *Journal
		e    *statestore.Effect
		f    fact.Fact
		late bool
	}{
		"alone":             {alone, &statestore.Effect{}, responded(0), true},
		"waited for":        {alone, &statestore.Effect{Urgent: true}, responded(0), false},
		"near the limit":    {alone, &statestore.Effect{}, long, false},
		"of a session":      {named, &statestore.Effect{}, responded(0), false},
		"no part of it":     {named, &statestore.Effect{}, began(call(lookup(), 0, 0, `{}`)), true},
		"of no known size":  {alone, &statestore.Effect{}, &fact.Cancelled{}, false},
		"the end of a turn": {alone, &statestore.Effect{}, ended(schemas.StatusCompleted), false},
	} {
		if got := tc.j.late(tc.e, tc.f, 3); (got != nil) != tc.late {
			t.Errorf("%s: late is %v, want %v", name, got != nil, tc.late)
		}
	}
}
