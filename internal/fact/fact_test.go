package fact

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/schemas"
)

func TestKey_IsAnotherForEveryPlace(t *testing.T) {
	t.Parallel()
	// Ids may hold what looks like the end of a key, save the slash.
	ids := []string{"a", "a1", "a.1", "1", "0", "a:0:1", "a-0", "a=", "a0", "a@0"}
	seen := make(map[string]string)
	for _, id := range ids {
		for step := range 25 {
			for position := range 25 {
				place := fmt.Sprintf("%s at %d, %d", id, step, position)
				key := Ref{Step: step, Position: position}.Key(id)
				if other, ok := seen[key]; ok {
					t.Errorf("%s and %s share the key %s", place, other, key)
				}
				seen[key] = place
			}
		}
	}
	if got := (Ref{Step: 3, Position: 14}).Key("turn-1"); got != "turn-1/3/14" {
		t.Errorf("Key = %s, want turn-1/3/14", got)
	}
}

func FuzzKey(f *testing.F) {
	f.Add("a", 1, 11, "a", 11, 1)
	f.Fuzz(func(t *testing.T, id1 string, step1, pos1 int, id2 string, step2, pos2 int) {
		if strings.Contains(id1, "/") || strings.Contains(id2, "/") {
			return
		}
		r1, r2 := Ref{Step: step1, Position: pos1}, Ref{Step: step2, Position: pos2}
		if same := id1 == id2 && r1 == r2; (r1.Key(id1) == r2.Key(id2)) != same {
			t.Errorf("keys %q and %q, although the places are the same: %t", r1.Key(id1), r2.Key(id2), same)
		}
	})
}

func TestChanges_IsTrueOfWhatMustBeDurableBeforeItRuns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		effect      schemas.Effect
		idempotency schemas.Idempotency
		want        bool
	}{
		{schemas.EffectNone, schemas.SafeToRetry, false},
		{schemas.EffectRead, schemas.SafeToRetry, false},
		{schemas.EffectRead, schemas.AtMostOnce, true},
		{schemas.EffectWrite, schemas.SafeToRetry, true},
		{schemas.EffectWrite, schemas.AtMostOnce, true},
		{schemas.EffectHost, schemas.SafeToRetry, true},
	} {
		if got := (Tool{Effect: tc.effect, Idempotency: tc.idempotency}).Changes(); got != tc.want {
			t.Errorf("Changes of %s, %s is %t, want %t", tc.effect, tc.idempotency, got, tc.want)
		}
	}
}

func TestEvents_CountsWhatAFactEmits(t *testing.T) {
	t.Parallel()
	calls := []Call{{}, {}}
	for _, tc := range []struct {
		name string
		fact Fact
		want int64
	}{
		{"accepted", &Accepted{}, 1},
		{"response", &Responded{}, 1},
		{"response with a wave", &Responded{Wave: calls}, 3},
		{"began", &Began{Calls: calls}, 2},
		{"began again", &Began{Calls: calls, Again: true}, 0},
		{"not begun", &NotBegun{Calls: []Ref{{}}}, 0},
		{"finished", &Finished{}, 1},
		{"cancelled", &Cancelled{}, 0},
		{"restarted", &Restarted{Start: 2}, 0},
		{"ended", &Ended{}, 1},
	} {
		if got := tc.fact.Events(); got != tc.want {
			t.Errorf("%s emits %d events, want %d", tc.name, got, tc.want)
		}
	}
}

func TestModelText_TellsTheModelWhatTheToolAnswered(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		res  Result
		want string
	}{
		{"a string as it is", Result{Status: schemas.StatusOK, Output: []byte(`"it's \"<5>\" °C\n"`)}, "it's \"<5>\" °C\n"},
		{"an object as its JSON", Result{Status: schemas.StatusOK, Output: []byte(`{"a":1.0}`)}, `{"a":1.0}`},
		{"a number", Result{Status: schemas.StatusOK, Output: []byte(`12345678901234567890`)}, `12345678901234567890`},
		{"nothing", Result{Status: schemas.StatusOK}, ""},
		{"an error by its code and message", Result{Status: schemas.StatusError, Code: schemas.CodeTimeout, Message: "after <30 s>"}, `{"error":{"code":"timeout","message":"after <30 s>"}}`},
		{"an error by the text that the tool marked as safe", Result{Status: schemas.StatusError, Code: schemas.CodeToolError, Message: "redacted", ForModel: "no such city"}, `{"error":{"code":"tool_error","message":"no such city"}}`},
		{"a denied call", Result{Status: schemas.StatusDenied, Code: schemas.CodeToolRefused, Message: "no"}, `{"error":{"code":"tool_refused","message":"no"}}`},
	} {
		if got := tc.res.ModelText(); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func FuzzModelText(f *testing.F) {
	f.Add("tool_error", "m", "")
	f.Add("x", "\xff\"", "<>")
	f.Fuzz(func(t *testing.T, code, message, forModel string) {
		text := (&Result{Status: schemas.StatusError, Code: schemas.Code(code), Message: message, ForModel: forModel}).ModelText()
		var told map[string]map[string]string
		if err := json.Unmarshal([]byte(text), &told); err != nil {
			t.Errorf("%q is no JSON: %v", text, err)
		}
	})
}

func TestAppendStep_AnswersEveryCallInTheOrderItWasAskedFor(t *testing.T) {
	t.Parallel()
	resp := &Response{Text: "let me see", Calls: []Asked{{Name: "a_b", CallID: "c1"}, {Name: "x", CallID: "c2"}}, Opaque: []byte("o"), Provider: "p"}
	results := []*Result{
		{Status: schemas.StatusOK, Output: []byte(`"yes"`), Tool: Tool{Name: "a.b"}},
		{Status: schemas.StatusSkipped, Code: "cancelled", Message: "m"},
	}
	want := []Message{
		{Role: RoleAssistant, Text: "let me see", Calls: resp.Calls, Opaque: []byte("o"), Provider: "p"},
		{Role: RoleTool, Text: "yes", CallID: "c1", Tool: "a_b"},
		{Role: RoleTool, Text: `{"error":{"code":"cancelled","message":"m"}}`, CallID: "c2", Tool: "x", Failed: true},
	}
	if diff := cmp.Diff(want, AppendStep(nil, resp, results)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestResult_IsInDoubtWhenItMayHaveChangedSomething(t *testing.T) {
	t.Parallel()
	doubt := map[string]bool{
		schemas.StatusOK: false, schemas.StatusError: false, schemas.StatusDenied: false, schemas.StatusSkipped: false,
		schemas.StatusOutcomeUnknown: true, schemas.StatusIndeterminate: true,
	}
	for status, want := range doubt {
		r := Result{Status: status}
		if r.InDoubt() != want || r.OK() != (status == schemas.StatusOK) {
			t.Errorf("%s: in doubt %t, ok %t", status, r.InDoubt(), r.OK())
		}
	}
}
