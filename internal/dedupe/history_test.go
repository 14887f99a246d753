package dedupe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// say runs a turn of a session that asks one call and answers.
func (b *bed) say(session, id, text, result string, offset int64) {
	b.t.Helper()
	j := b.accept(askIn(session, id, text, offset))
	c := call(lookup(), 0, 0, `{}`)
	b.add(j, responded(0, `{}`))
	b.add(j, began(c))
	b.add(j, finished(c, result))
	b.add(j, responded(1))
	b.add(j, ended(schemas.StatusCompleted))
	j.Close()
}

func texts(ms []fact.Message) []string {
	out := []string{}
	for _, m := range ms {
		out = append(out, string(m.Role)+" "+m.Text)
	}
	return out
}

func TestHistory_IsWhatTheSessionSaidInOrder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.say("s1", "t1", "one", `"r1"`, 1)
	b.say("s1-other", "x1", "not mine", `"x"`, 2)
	b.say("s1", "t2", "two", `{"r":2}`, 3)
	b.commit()
	b.say("s1", "t3", "three", `3`, 4) // Not committed yet.
	want := []string{
		"user one", "assistant ", "tool r1", "assistant done", "user two", "assistant ", `tool {"r":2}`, "assistant done", "user three", "assistant ", "tool 3", "assistant done",
	}
	j := b.accept(ask("t4", "four", 5))
	if diff := cmp.Diff(want, texts(j.History())); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	j.Close()
	b.commit()
	b.restart("w2")
	j = b.accept(ask("t4", "four", 5))
	if diff := cmp.Diff(want, texts(j.History())); diff != "" || !j.Resumed() {
		t.Errorf("after a restart the history of the resumed turn is (-want +got):\n%s", diff)
	}
	if got := j.History()[2]; got.CallID != "call_0_0" || got.Tool != "lookup" || got.Failed {
		t.Errorf("the result is %+v", got)
	}
}

// Numbers are fixed width and parts too, so that the tenth turn does not come before the second.
func TestHistory_KeepsItsOrderOverManyTurnsAndParts(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *Config) { c.RecordBytes = 2500 })
	var want []string
	for i := range 20 {
		result := fmt.Sprintf("%d %s", i, strings.Repeat("r", 95*(i%20)))
		text := fmt.Sprint("say ", i, strings.Repeat("u", 600))
		b.say("s1", fmt.Sprint("t", i), text, `"`+result+`"`, int64(i))
		want = append(want, "user "+text, "assistant ", "tool "+result, "assistant done")
		if i%3 == 0 {
			b.commit()
		}
	}
	records, _ := b.commit()
	parts := 0
	for _, r := range append(b.records, records...) {
		if len(r.Value) > 2500 {
			t.Errorf("%s has %d bytes", r.Key, len(r.Value))
		}
		if strings.HasSuffix(r.Key, "/0001") {
			parts++
		}
	}
	if parts == 0 {
		t.Errorf("no turn has a second part")
	}
	b.restart("w2")
	if diff := cmp.Diff(want, texts(b.accept(ask("t99", "hi", 99)).History())); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestHistory_HasWhatFollowsAHistoryThatTheTurnBrought(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.say("s1", "t1", "one", `"r1"`, 1)
	in := ask("t2", "old question", 2)
	in.Event.Messages = append(in.Event.Messages, schemas.Message{Role: "assistant", Text: "old answer"}, schemas.Message{Role: "user", Text: "new question"})
	j := b.accept(in)
	if len(j.History()) != 0 || !j.Accepted().OwnHistory {
		t.Errorf("a turn that brings its history is given %q", texts(j.History()))
	}
	b.add(j, responded(0))
	b.add(j, ended(schemas.StatusCompleted))
	j.Close()
	want := []string{"user one", "assistant ", "tool r1", "assistant done", "user new question", "assistant done"}
	if diff := cmp.Diff(want, texts(b.accept(ask("t3", "hi", 3)).History())); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestHistory_OfATurnThatFailedHasAResultForEveryCall(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := b.accept(ask("t1", "hi", 1))
	c := call(charge(), 0, 1, `{}`)
	b.add(j, responded(0, `{}`, `{}`))
	b.commit()
	b.restart("w2")
	j = b.accept(ask("t1", "hi", 1))
	skipped := finished(call(lookup(), 0, 0, `{}`), "")
	skipped.Status, skipped.Output, skipped.Code, skipped.Message = schemas.StatusSkipped, nil, schemas.CodeCancelled, "too late"
	b.add(j, finished(c, `1`), skipped, ended(schemas.StatusCancelled)) // As one, and not in the order of the calls.
	j.Close()
	b.commit()
	b.restart("w3")
	want := []string{"user hi", "assistant ", `tool {"error":{"code":"cancelled","message":"too late"}}`, "tool 1"}
	if diff := cmp.Diff(want, texts(b.accept(ask("t2", "hi", 2)).History())); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestHistory_IsNotKeptForAnAgentWithout(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for i := range int64(2) {
		in := ask(fmt.Sprint("t", i), "hi", i)
		in.Agent = agent(false)
		j := b.accept(in)
		if len(j.History()) != 0 {
			t.Errorf("history %q", texts(j.History()))
		}
		b.add(j, responded(0), ended(schemas.StatusCompleted))
		j.Close()
		b.commit()
	}
	if got := b.committedKeys(); !slices.Equal(got, []string{"tt0", "tt1"}) {
		t.Errorf("the state holds %q", got)
	}
}

// Its session has its id, but is not one that another turn can be of, not even by naming it.
func TestHistory_IsNotKeptOfATurnThatNamesNoSession(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.say("t1", "before", "one", `"r1"`, 1)
	lone := askIn("t1", "t1", "alone", 2)
	lone.Lone = true
	j := b.accept(lone)
	if got := texts(j.History()); len(got) != 0 {
		t.Errorf("it is told %q", got)
	}
	b.add(j, responded(0, `{}`))
	j.Close()
	b.commit()
	b.restart("w2")
	if j = b.accept(lone); !j.Resumed() || len(j.History()) != 0 {
		t.Errorf("resumed (%v), it is told %q", j.Resumed(), texts(j.History()))
	}
	c := call(lookup(), 0, 0, `{}`)
	b.add(j, began(c), finished(c, `"r2"`), responded(1), ended(schemas.StatusCompleted))
	j.Close()
	b.commit()
	if got := b.committedKeys(); !slices.Equal(got, []string{historyKey("t1", 0, 0), "tbefore", "tt1"}) {
		t.Errorf("the state holds %q", got)
	}
	want := []string{"user one", "assistant ", "tool r1", "assistant done"}
	if diff := cmp.Diff(want, texts(b.accept(askIn("t1", "after", "hi", 3)).History())); diff != "" {
		t.Errorf("who names its session is told (-want +got):\n%s", diff)
	}
}

// Sessions whose ids begin alike must not read one another.
func TestHistory_IsOfOneSession(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for i, session := range []string{"s", "s1", "s.", "s0"} {
		b.say(session, fmt.Sprint("t", i), session, `1`, int64(i))
	}
	b.commit()
	for i, session := range []string{"s", "s1", "s.", "s0", "new"} {
		got := texts(b.accept(askIn(session, fmt.Sprint("u", i), "hi", int64(10+i))).History())
		if session == "new" && len(got) != 0 || session != "new" && (len(got) != 4 || got[0] != "user "+session) {
			t.Errorf("%s is told %q", session, got)
		}
	}
}

func TestHistoryKey_ReadsItsNumberBack(t *testing.T) {
	t.Parallel()
	for _, n := range []uint32{0, 1, 255, 1 << 31, 1<<32 - 1} {
		if got, err := historyNumber("s:1", historyKey("s:1", n, 3)); err != nil || got != n {
			t.Errorf("number %d is read as %d, %v", n, got, err)
		}
	}
	for _, key := range []string{"hs:1/", "hs:1/0000", "hs:1/xyzxyzxy/0000"} {
		if _, err := historyNumber("s:1", key); err == nil {
			t.Errorf("%s has a number", key)
		}
	}
}

func TestHistoryKey_HasFixedWidth(t *testing.T) {
	t.Parallel()
	for _, n := range []uint32{0, 1, 15, 16, 255, 1 << 20, 1<<32 - 1} {
		for _, part := range []int{0, 9, 10, 1 << 12, 1<<16 - 1, 1 << 16, 1 << 20} {
			if got, want := historyKey("s:1", n, part), fmt.Sprintf("hs:1/%08x/%04x", n, part); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
}
