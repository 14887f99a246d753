package dedupe

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// What a turn_id means the second time depends on what became of the first, in the state and in what is not committed yet.
func TestAccept_TellsWhatARepeatedTurnIDMeans(t *testing.T) {
	t.Parallel()
	nothing := func(*bed) {}
	running := func(b *bed) { b.accept(ask("t1", "hi", 10)) }
	underWay := func(b *bed) {
		j := b.accept(ask("t1", "hi", 10))
		b.add(j, responded(0, `{}`))
		j.Close()
	}
	over := func(b *bed) {
		j := b.accept(ask("t1", "hi", 10))
		b.add(j, responded(0), ended(schemas.StatusCompleted))
		j.Close()
	}
	committed := func(f func(*bed)) func(*bed) { return func(b *bed) { f(b); b.commit() } }
	restarted := func(f func(*bed)) func(*bed) { return func(b *bed) { f(b); b.commit(); b.restart("w2") } }
	lost := func(f func(*bed)) func(*bed) { return func(b *bed) { f(b); b.abort(); b.restart("w2") } }
	ofOldTopic := func(b *bed) {
		in := ask("t1", "hi", 10)
		in.Origin.TopicID = []byte("old")
		b.accept(in).Close()
	}
	anew := ask("t1", "something else", 10)
	anew.Origin.TopicID = []byte("new")
	same, other, elsewhere := ask("t1", "hi", 20), ask("t1", "something else", 20), askIn("s2", "t1", "hi", 20)
	tests := []struct {
		name   string
		before func(*bed)
		in     *Input
		want   string
	}{
		{"never seen", nothing, same, "new"},
		{"running, same payload under another session", running, elsewhere, "conflict"},
		{"running and committed, other payload", committed(running), other, "conflict"},
		{"under way", underWay, same, "resumed"},
		{"under way and committed", committed(underWay), same, "resumed"},
		{"under way at another worker", restarted(underWay), same, "resumed"},
		{"running at a worker that was killed", restarted(running), same, "resumed"},
		{"under way, other payload", underWay, other, "conflict"},
		{"under way at another worker, other payload", restarted(underWay), other, "conflict"},
		{"under way at another worker, other session", restarted(underWay), elsewhere, "conflict"},
		{"under way at another worker, its own record read as another payload", restarted(underWay), ask("t1", "something else", 10), "resumed"},
		{"under way at another worker, other payload in its place of another topic", restarted(ofOldTopic), anew, "conflict"},
		{"under way at another worker, other session in its place", restarted(underWay), askIn("s2", "t1", "hi", 10), "conflict"},
		{"ended", over, same, "done"},
		{"ended and committed", committed(over), same, "done"},
		{"ended at another worker", restarted(over), same, "done"},
		{"ended, other payload", over, other, "conflict"},
		{"ended at another worker, other payload", restarted(over), other, "conflict"},
		{"ended, but its cycle was aborted and the worker killed", lost(over), same, "new"},
	}
	for _, tc := range slices.Clone(tests) { // What cannot begin a turn is refused, unless it is the event of one that has begun.
		unfit := *tc.in
		unfit.Agent, unfit.Unfit = nil, schemas.Errorf(schemas.CodeUnknownAgent, "no such agent")
		tc.name, tc.in = "unfit, "+tc.name, &unfit
		if tc.want == "new" || tc.want == "conflict" {
			tc.want = "refused"
		}
		tests = append(tests, tc)
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			tc.before(b)
			b.commit()
			outputs, records := len(b.outputs), len(b.records)
			j, err := b.store.Accept(tc.in)
			b.commit()
			got := "done"
			switch {
			case err != nil && err == tc.in.Unfit: //nolint:errorlint // It is handed on as it is.
				got = "refused"
			case codeOf(err) == schemas.CodeConflict:
				got = "conflict"
			case err != nil:
				t.Fatalf("Accept: %v", err)
			case j != nil && j.Resumed():
				got = "resumed"
			case j != nil:
				got = "new"
			}
			if got != tc.want {
				t.Errorf("the turn is %s, want %s", got, tc.want)
			}
			if wantDone := got == "done"; slices.Contains(b.done(), 20) != wantDone {
				t.Errorf("%s, and the offsets done are %v", got, b.done())
			}
			if changed := len(b.outputs) > outputs || len(b.records) > records; changed != (got == "new") {
				t.Errorf("%s, and it wrote %d events and %d records", got, len(b.outputs)-outputs, len(b.records)-records)
			}
			b.checkEvents()
		})
	}
}

// A journal that is taken up again holds all facts that were recorded, committed or not, and goes on with their seq.
func TestAccept_ResumesWithEveryRecordedFact(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c0, c1 := call(lookup(), 0, 0, `{}`), call(lookup(), 0, 1, `{}`)
	j := b.accept(ask("t1", "hi", 10))
	b.add(j, responded(0, `{}`, `{}`))
	b.commit()
	b.add(j, began(c0))
	b.abort()
	b.add(j, finished(c0, `"a"`), began(c1))
	b.commit()
	b.add(j, finished(c1, `"lost"`))
	b.restart("w2")

	j = b.accept(ask("t1", "hi", 10))
	want := []fact.Fact{j.Accepted(), responded(0, `{}`, `{}`), began(c0), finished(c0, `"a"`), began(c1)}
	var got []fact.Fact
	for _, f := range j.Frames() {
		got = append(got, f.Fact)
	}
	if diff := cmp.Diff(want, got); diff != "" || !j.Resumed() {
		t.Errorf("resumed %t with other facts (-want +got):\n%s", j.Resumed(), diff)
	}
	b.add(j, finished(c1, `"b"`), ended(schemas.StatusCompleted))
	b.commit()
	b.checkEvents()
	want2 := []string{"t1/turn:start", "t1/turn:step/0", "t1/tool:start/0/0", "t1/tool:result/0/0", "t1/tool:start/0/1", "t1/tool:result/0/1", "t1/turn:end"}
	if got := b.ids(); !slices.Equal(got, want2) {
		t.Errorf("events %q, want %q", got, want2)
	}
	if got := b.committedKeys(); !slices.Equal(got, []string{"hs1/00000000/0000", "tt1"}) {
		t.Errorf("the state holds %q", got)
	}
}

// The agent was changed in a deployment: a turn under way keeps the configuration it was accepted with.
func TestAccept_ResumesUnderTheRecordedAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.accept(ask("t1", "hi", 10))
	b.commit()
	b.restart("w2")
	in := ask("t1", "hi", 10)
	in.Agent.System = "You do not help."
	j := b.accept(in)
	if diff := cmp.Diff(agent(true), j.Agent()); diff != "" {
		t.Errorf("the turn is resumed under another agent (-recorded +got):\n%s", diff)
	}
}

func TestAccept_StoresAnAgentOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	count := func() (n int) {
		for _, r := range b.records {
			if r.Key[0] == 'a' {
				n++
			}
		}
		return n
	}
	for i := range 5 {
		b.accept(ask(fmt.Sprint("t", i), "hi", int64(i)))
		if i%2 == 0 {
			b.commit()
		}
	}
	b.commit()
	b.restart("w2")
	b.accept(ask("t9", "hi", 9))
	b.commit()
	if n := count(); n != 1 {
		t.Errorf("the agent was stored %d times, want once", n)
	}
	in := ask("t10", "hi", 10)
	in.Agent.Limits.Steps++
	b.accept(in)
	b.commit()
	if n := count(); n != 2 {
		t.Errorf("another agent makes %d records, want 2", n)
	}
}

// A turn that is too large was refused after its agent had been noted as stored. The next turn then left it out, and could
// not be resumed for lack of a configuration.
func TestAccept_StoresTheAgentOfATurnAfterARefusedOne(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *Config) { c.RecordBytes = 4096 })
	if _, err := b.store.Accept(ask("t1", strings.Repeat("x", 5000), 10)); codeOf(err) != schemas.CodeTooLarge {
		t.Fatalf("Accept gives %v, want too_large", err)
	}
	if records, outputs := b.commit(); len(records)+len(outputs) != 0 {
		t.Errorf("the refused turn wrote %q", keys(records))
	}
	b.accept(ask("t2", "hi", 11))
	b.commit()
	b.restart("w2")
	if j := b.accept(ask("t2", "hi", 11)); !j.Resumed() {
		t.Errorf("the turn is not resumed")
	}
	if j := b.accept(ask("t1", "short", 10)); j.Resumed() {
		t.Errorf("the refused turn left something behind")
	}
}

func TestAccept_RecordsWhatTheTurnAsksFor(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	in := ask("t1", "hi", 10)
	deadline := at(5)
	in.Event.Deadline, in.Event.Tools, in.Event.OutputSchema = &deadline, []string{}, []byte(`{}`)
	in.Event.Scope = &schemas.Scope{PrincipalID: "p", Permissions: []string{}}
	in.Event.Messages = append(in.Event.Messages, schemas.Message{Role: "assistant", Text: "a"}, schemas.Message{Role: "user", Parts: []schemas.Part{{Type: "text", Text: "b"}}})
	in.Trace, in.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "v=1"
	b.accept(in)
	b.commit()
	b.restart("w2")
	a := b.accept(in).Accepted()
	want := &fact.Accepted{
		TurnID: "t1", SessionID: "s1", AgentName: "support", AgentHash: a.AgentHash, PayloadHash: in.Hash, Origin: in.Origin, At: a.At, Deadline: deadline,
		Metadata: map[string]string{"tenant": "blue"}, Narrowed: true, Tools: nil, Scope: in.Event.Scope, OutputSchema: []byte(`{}`), Trace: in.Trace, TraceState: "v=1",
		Worker: "w1", OwnHistory: true, Messages: []fact.Message{
			{Role: fact.RoleUser, Text: "hi"}, {Role: fact.RoleAssistant, Text: "a"}, {Role: fact.RoleUser, Parts: []schemas.Part{{Type: "text", Text: "b"}}},
		},
	}
	if diff := cmp.Diff(want, a); diff != "" || len(a.AgentHash) != 32 || !a.At.Equal(b.clock) {
		t.Errorf("recorded (-want +got), at %s:\n%s", a.At, diff)
	}
}

func TestResume_TakesATurnWhoseRecordIsGone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 10))
	b.add(j, responded(0))
	b.commit()
	b.restart("w2")
	j, err := b.store.Resume("t1", ThriftNone, nil)
	if err != nil || !j.Resumed() || len(j.Frames()) != 2 {
		t.Fatalf("Resume: %v", err)
	}
	if again, err := b.store.Resume("t1", ThriftNone, nil); err == nil {
		t.Errorf("a turn that runs is resumed a second time: %v", again)
	}
	b.add(j, ended(schemas.StatusCompleted))
	j.Close()
	b.commit()
	if got := b.done(); len(got) != 0 {
		t.Errorf("offsets done are %v, although its record was not delivered", got)
	}
	b.checkEvents()
	if again, err := b.store.Resume("t1", ThriftNone, nil); again != nil || err != nil {
		t.Errorf("a turn that has ended is resumed: %v, %v", again, err)
	}
	if _, err := b.store.Resume("never", ThriftNone, nil); err == nil {
		t.Errorf("a turn that was never seen is resumed without an error")
	}
}

func TestUnfinished_ListsTurnsBelowTheStartInTheOrderOfTheirRecords(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for offset, id := range []string{"zeta", "alpha", "mid", "beta", "ended", "late"} {
		j := b.accept(askIn("s-"+id, id, "hi", int64(offset)))
		for step := range offset { // Several records for some.
			b.add(j, responded(step, `{}`))
			b.commit()
		}
		if id == "ended" {
			b.add(j, ended(schemas.StatusFailed))
		}
		j.Close()
	}
	b.commit()
	b.restart("w2")
	got, awaited, err := b.store.Unfinished(5, nil)
	if err != nil {
		t.Fatalf("Unfinished: %v", err)
	}
	var ids []string
	for _, u := range got {
		ids = append(ids, fmt.Sprintf("%s of %s at %d", u.TurnID, u.SessionID, u.Offset))
	}
	if want := []string{"zeta of s-zeta at 0", "alpha of s-alpha at 1", "mid of s-mid at 2", "beta of s-beta at 3"}; !slices.Equal(ids, want) {
		t.Errorf("unfinished are %q, want %q", ids, want)
	}
	late := askIn("s-late", "late", "hi", 5)
	if u := awaited[5]; len(awaited) != 1 || u.TurnID != "late" || u.SessionID != "s-late" || !bytes.Equal(u.PayloadHash, late.Hash) {
		t.Errorf("awaited are %v, want the turn late at 5", awaited)
	}
}

// Turns of a topic that was made again come before those of the one that is there now, wherever their records were.
func TestUnfinished_ListsTurnsOfATopicThatIsNoMore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, in := range []*Input{askIn("a", "now", "hi", 1), askIn("b", "then", "hi", 7), askIn("c", "later", "hi", 5), askIn("d", "unknown", "hi", 6)} {
		switch in.Event.TurnID {
		case "then":
			in.Origin.TopicID = []byte("old")
		case "now", "later":
			in.Origin.TopicID = []byte("new")
		}
		b.accept(in).Close()
	}
	b.commit()
	b.restart("w2")
	got, awaited, err := b.store.Unfinished(2, []byte("new"))
	if err != nil {
		t.Fatalf("Unfinished: %v", err)
	}
	var ids []string
	for _, u := range got {
		ids = append(ids, u.TurnID)
	}
	if want := []string{"then", "now"}; !slices.Equal(ids, want) {
		t.Errorf("unfinished are %q, want %q", ids, want)
	}
	if len(awaited) != 2 || awaited[5].TurnID != "later" || awaited[6].TurnID != "unknown" {
		t.Errorf("awaited are %v, want the turns later at 5 and unknown at 6", awaited)
	}
}

// State that a newer release wrote halts the partition with an error that says so, and is never taken for a new turn.
func TestAccept_RefusesStateOfANewerRelease(t *testing.T) {
	t.Parallel()
	newer := []byte{statestore.Format + 1, 1, 2, 3}
	for _, key := range []string{"tt1", "jt1/00000000", "hs1/00000000/0000", "ct1/s1"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.formats = statestore.Formats{
				Newest: 2, Write: 2, Store: func(_ byte, _ string, body []byte) []byte { return body },
				Load: func(_ byte, _ string, body []byte) ([]byte, error) { return body, nil },
			}
			b.restart("newer")
			if err := b.part.Add(&statestore.Effect{Mutations: []statestore.Mutation{{Key: key, Value: newer}}, Offset: statestore.NoOffset}); err != nil {
				t.Fatal(err)
			}
			b.commit()
			b.close()
			b.formats = statestore.Formats{}
			err := b.tryOpen()
			if err == nil {
				_, err = b.store.Accept(ask("t1", "hi", 10))
			}
			if !errors.Is(err, statestore.ErrFormat) {
				t.Errorf("the older release gives %v, want ErrFormat", err)
			}
		})
	}
}

func TestRecord_KeepsEveryStatus(t *testing.T) {
	t.Parallel()
	hash := bytes.Repeat([]byte{7}, hashSize)
	for _, status := range []string{schemas.StatusCompleted, schemas.StatusFailed, schemas.StatusCancelled, schemas.StatusOutcomeUnknown, schemas.StatusIndeterminate} {
		b, err := record{hash: hash, status: status, at: at(0)}.encode()
		if err != nil || len(b) != recordSize {
			t.Fatalf("encode: %d bytes, %v", len(b), err)
		}
		r, err := decodeRecord(b)
		if err != nil || r.status != status || !bytes.Equal(r.hash, hash) || r.at.UnixMilli() != at(0).UnixMilli() {
			t.Errorf("%s is read as %+v, %v", status, r, err)
		}
	}
	if _, err := (record{hash: hash[1:]}).encode(); err == nil {
		t.Errorf("a short hash is stored")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	b, err := record{hash: bytes.Repeat([]byte{7}, hashSize), status: schemas.StatusFailed, at: at(0)}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		if again, err := r.encode(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("encode(decode(%x)) = %x, %v", b, again, err)
		}
	})
}
