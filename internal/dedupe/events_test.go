package dedupe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// The golden files hold the records of whole turns as they stand on the topics: topic, key, headers and value.
func TestEvents_AreWrittenAsTheGoldenFilesSay(t *testing.T) {
	t.Parallel()
	cost, micros := int64(1234), int64(55)
	tests := map[string]func(b *bed){
		"completed": func(b *bed) {
			in := ask("t1", "what is 2+2?", 10)
			in.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			j := b.accept(in)
			r := responded(0, `{"n": 1}`)
			r.Text, r.CostMicros, r.Usage.CacheReadTokens = "let me look", &cost, 4
			b.add(j, r)
			c := call(lookup(), 0, 0, `{"n":1}`)
			b.add(j, began(c))
			f := finished(c, `{"sum":4}`)
			f.CostMicros = &micros
			b.add(j, f)
			b.add(j, responded(1))
			end := ended(schemas.StatusCompleted)
			end.CostMicros = &cost
			b.add(j, end)
		},
		"outcome_unknown": func(b *bed) {
			in := ask("t1", "charge me", 10)
			in.Event.Tools, in.Event.Metadata = []string{"charge"}, nil
			j := b.accept(in)
			r := responded(0, `{"n":`, `{}`, ``)
			c := call(charge(), 0, 1, `{}`)
			r.Wave = []fact.Call{c}
			bad := finished(call(charge(), 0, 0, ""), "")
			bad.Status, bad.Code, bad.Message, bad.Output, bad.Started, bad.Attempts = schemas.StatusError, schemas.CodeInvalidArguments, "they are no JSON", nil, false, 0
			b.add(j, r, bad)
			unknown := finished(c, "")
			unknown.Status, unknown.Code, unknown.Message, unknown.Output = schemas.StatusOutcomeUnknown, schemas.CodeTimeout, "after 30 s", nil
			unknown.ForModel = "this is for the model alone"
			b.add(j, unknown)
			b.add(j, &fact.NotBegun{Calls: []fact.Ref{c.Ref}})
			again := began(c)
			again.Again = true
			b.add(j, again)
			end := ended(schemas.StatusOutcomeUnknown)
			end.Code, end.Message, end.Output = schemas.CodeTimeout, "call t1/0/1 of charge: after 30 s", nil
			b.add(j, end)
		},
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			run(b)
			b.commit()
			b.checkEvents()
			compareGolden(t, name, b.outputs)
		})
	}
}

func TestRejected_AnswersWhoWaitsForATurnThatWasNotAccepted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	in := ask("t1", "hi", 10)
	reason := &schemas.Error{Code: schemas.CodeInvalidTurn, Path: "messages[0].role", Message: "it must be user, assistant or system"}
	first, err := b.store.codec.Rejected(in.Event, in.Origin, reason)
	if err != nil {
		t.Fatalf("Rejected: %v", err)
	}
	compareGolden(t, "rejected", first)
	again, err := b.store.codec.Rejected(in.Event, in.Origin, reason)
	if err != nil || decode(t, &again[0]).ID != decode(t, &first[0]).ID || decode(t, &first[0]).Seq != nil {
		t.Errorf("a repeat has another id, or a seq: %s, %v", again[0].Value, err)
	}
}

func compareGolden(t *testing.T, name string, outputs []statestore.Output) {
	t.Helper()
	var b strings.Builder
	for _, o := range outputs {
		fmt.Fprintf(&b, "%s, key %s, partition %d\n", o.Topic, o.Key, o.Partition)
		for _, h := range o.Headers {
			fmt.Fprintf(&b, "%s: %s\n", h.Key, h.Value)
		}
		var value bytes.Buffer
		if err := json.Indent(&value, o.Value, "", "  "); err != nil {
			t.Fatalf("%s: %v", o.Value, err)
		}
		fmt.Fprintf(&b, "%s\n\n", value.String())
	}
	file := filepath.Join("testdata", "events", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s: the events differ; run with -update if that is right (-want +got):\n%s", file, diff)
	}
}

func TestAsJSON_KeepsWhateverTheModelWrote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{`{"a": 1}`: `{"a": 1}`, `{"a":`: `"{\"a\":"`, ``: `""`, "\xff": "\"\\ufffd\""} {
		if got := string(asJSON([]byte(in))); got != want {
			t.Errorf("asJSON(%q) = %s, want %s", in, got, want)
		}
	}
}

// The encoder is the first to look at a call's arguments, so whatever it takes must be JSON that needs no quoting.
func TestEvents_HaveArgumentsAsTheyAreOnlyWhenTheyAreJSON(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{"", " ", "{}", ` {"a" : 1} `, "{", "null", `"é"`, "\"\xff\"", "1 2", "nul", "[1,]", "\x00", `{"a":1,"a":2}`, strings.Repeat("[", 2000) + strings.Repeat("]", 2000)} {
		b := newBed(t)
		j := b.accept(ask("t1", "hi", 1))
		f := responded(0, arguments)
		got, want := &statestore.Effect{}, &statestore.Effect{}
		gotErr := j.stepped(got, f, 1)
		wantErr := j.turnEvent(want, j.stepEvent(f, 1, asJSON))
		if diff := cmp.Diff(want.Outputs, got.Outputs); diff != "" || (gotErr == nil) != (wantErr == nil) {
			t.Errorf("arguments %q: %v, want %v (-want +got):\n%s", arguments, gotErr, wantErr, diff)
		}
	}
}
