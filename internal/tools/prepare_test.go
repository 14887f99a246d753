package tools

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

type manyArgs struct {
	ID    string           `json:"id"`
	N     int8             `json:"n"`
	At    *time.Time       `json:"at"`
	Items []map[string]int `json:"items"`
}

func many(*Context, manyArgs) (string, error) { return "", nil }

func TestPrepare_TakesOnlyArgumentsThatFit(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	b := bindAll(t, r, AgentBinding{}, Define("many", many, reads()), Define("none", func(*Context, struct{}) (string, error) { return "", nil }, reads()))
	for _, tc := range []struct{ name, tool, arguments, input, message string }{
		{"canonical", "many", ` {"n":1.0e0, "id":"<é>", "at":null, "items":[{"b":1,"a":2}]} `, "", "$.n: expected a value of type int8"},
		{"sorted", "many", ` {"n":7, "id":"<é>", "at":null, "items":[{"b":1,"a":2}]} `, `{"at":null,"id":"<é>","items":[{"a":2,"b":1}],"n":7}`, ""},
		{"nothing for a tool without arguments", "none", ``, `{}`, ""},
		{"white space for a tool without arguments", "none", " \n", `{}`, ""},
		{"null", "none", `null`, "", "$: expected an object"},
		{"not JSON", "none", `{"a":`, "", "$: not valid JSON: it ends too early"},
		{"two objects", "none", `{}{}`, "", "$: not valid JSON: more than one value, the next at byte 2"},
		{"an extra key", "none", `{"a b":1}`, "", `$["a b"]: no such property`},
		{
			"all that is wrong", "many", `{"n":"7","items":[{"a":1},{"a":"x"}],"at":5}`, "",
			"$.at: expected null or string, got number; $.id: missing; $.items[1].a: expected integer, got string; and 1 more",
		},
		{"too large for the Go type", "many", `{"n":300,"id":"","at":null,"items":[]}`, "", "$.n: expected a value of type int8"},
		{"no time", "many", `{"n":3,"id":"","at":"tomorrow","items":[]}`, "", "$: a value does not fit the tool's types"},
		{"too deep", "none", strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), "", "$: nested more than 64 deep"},
		{"too large", "none", `{"a":"` + strings.Repeat("x", 512<<10) + `"}`, "", "$: the arguments have 524296 bytes, the limit is 524288"},
		{"a decode bomb", "many", `{"n":1e999999999}`, "", "$: a number with an exponent beyond 400"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ref := fact.Ref{Step: 1, Position: 2}
			call, result := b.Prepare(fact.Asked{Name: tc.tool, CallID: "c", Arguments: []byte(tc.arguments)}, ref, b.Tools())
			tool, _ := b.Find(tc.tool)
			if tc.message == "" {
				want := fact.Call{Ref: ref, CallID: "c", Tool: tool, Input: []byte(tc.input)}
				if diff := cmp.Diff(want, call, cmpopts.IgnoreFields(fact.Call{}, "Decoded")); diff != "" || result != nil {
					t.Errorf("result %+v, call (-want +got):\n%s", result, diff)
				}
				return
			}
			want := &fact.Result{
				Ref: ref, CallID: "c", Tool: tool, Status: schemas.StatusError, Code: schemas.CodeInvalidArguments, Message: tc.message,
			}
			if result != nil {
				want.ForModel = result.ForModel
			}
			if diff := cmp.Diff(want, result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrepare_TellsOnlyTheModelWhatItWrote(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	b := bindAll(t, r, AgentBinding{}, Define("many", many, reads()))
	_, result := b.Prepare(fact.Asked{Name: "many", Arguments: []byte(`{"n":3,"id":"","at":"tomorrow","items":[]}`)}, fact.Ref{}, b.Tools())
	if strings.Contains(result.Message, "tomorrow") || !strings.Contains(result.ForModel, "tomorrow") {
		t.Errorf("the event says %q, the model is told %q", result.Message, result.ForModel)
	}
}

func TestPrepare_KnowsOnlyWhatIsOffered(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	list := []Tool{}
	for i := range 25 {
		list = append(list, Define("crm."+string(rune('a'+i)), lookup, reads()))
	}
	b := bindAll(t, r, AgentBinding{}, list...)
	args := []byte(`{"order_id":"1","reason":null}`)
	for _, tc := range []struct {
		name, asked, message string
		offered              []fact.Tool
	}{
		{"offered, by the model's name", "crm_b", "", b.Tools()[:2]},
		{"by its own name", "crm.b", "unknown tool 'crm.b'; available: crm_a, crm_b", b.Tools()[:2]},
		{"bound but not offered", "crm_c", "unknown tool 'crm_c'; available: crm_a, crm_b", b.Tools()[:2]},
		{"nothing offered", "x", "unknown tool 'x'; available: none", nil},
		{
			"a long name and many tools", strings.Repeat("é", 70),
			"unknown tool '" + strings.Repeat("é", 64) + "'; available: crm_a, crm_b, crm_c, crm_d, crm_e, crm_f, crm_g, crm_h, crm_i, crm_j, " +
				"crm_k, crm_l, crm_m, crm_n, crm_o, crm_p, crm_q, crm_r, crm_s, crm_t",
			b.Tools(),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			call, result := b.Prepare(fact.Asked{Name: tc.asked, CallID: "c", Arguments: args}, fact.Ref{}, tc.offered)
			if tc.message == "" {
				if result != nil || call.Tool.Name != "crm.b" {
					t.Errorf("got %+v, %+v", call, result)
				}
				return
			}
			if result == nil || result.Code != schemas.CodeUnknownTool || result.Status != schemas.StatusError || result.Started || result.Message != tc.message {
				t.Errorf("got %+v, want %q", result, tc.message)
			}
		})
	}
}

func TestPrepare_StripsNullsThatStandForAbsent(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	opts := with(reads(), func(o *Options) {
		o.Input = json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"]}`)
	})
	tool := Define("t", func(_ *Context, in map[string]any) (any, error) { return in, nil }, opts)
	strict := bindAll(t, r, AgentBinding{Strict: true}, tool)
	if got := string(mustPrepare(t, strict, "t", `{"b":null,"a":"x"}`).Input); got != `{"a":"x"}` {
		t.Errorf("the tool gets %s", got)
	}
	loose := bindAll(t, r, AgentBinding{}, tool)
	if _, result := loose.Prepare(fact.Asked{Name: "t", Arguments: []byte(`{"b":null,"a":"x"}`)}, fact.Ref{}, loose.Tools()); result == nil {
		t.Error("a null was stripped although the schema was not made strict")
	}
}

func TestExplain_SaysWhatWasExpectedAndNoValue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, schema, value, want string }{
		{"enum", `{"enum":["a",1]}`, `"secret"`, `$: expected one of "a", 1`},
		{"const", `{"const":{"a":1}}`, `"secret"`, `$: expected {"a":1}`},
		{"length", `{"minLength":9}`, `"secret"`, `$: expected at least 9 characters`},
		{"pattern", `{"pattern":"^a$"}`, `"secret"`, `$: expected a match of ^a$`},
		{"bounds", `{"minimum":1.5}`, `-77`, `$: expected at least 3/2`},
		{"items", `{"maxItems":1}`, `[1,2]`, `$: expected at most 1 items`},
		{"inside a nullable", `{"anyOf":[{"type":"object","properties":{"a":{"type":"string"}}},{"type":"null"}]}`, `{"a":1}`, `$.a: expected string, got number`},
		{"missing in a nullable", `{"anyOf":[{"type":"object","required":["a"]},{"type":"null"}]}`, `{}`, `$.a: missing`},
		{"no alternative", `{"anyOf":[{"type":"string"},{"type":"null"}]}`, `7`, `$: expected string or null`},
		{"no alternative of one type", `{"anyOf":[{"enum":["a"]},{"enum":["b"]}]}`, `7`, `$: expected a value that fits one of the alternatives`},
		{"false", `false`, `7`, `$: does not fit the schema`},
		{"not", `{"not":{"type":"string"}}`, `"secret"`, `$: does not fit the schema`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, faults := compile([]byte(tc.schema), "input")
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			v, err := parse([]byte(tc.value))
			if err != nil {
				t.Fatal(err)
			}
			got := explain(s.compiled.Validate(v))
			if got != tc.want || strings.Contains(got, "secret") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzPrepare(f *testing.F) {
	r, _ := newRuntime(f, Deps{})
	b := bindAll(f, r, AgentBinding{Strict: true}, Define("lookup", lookup, reads()), Define("t", lookup, with(reads(), func(o *Options) {
		o.Input = json.RawMessage(`{"type":"object","properties":{"order_id":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#"}}}}`)
	})))
	f.Add("t", []byte(`{"order_id":null,"kids":[{"order_id":"1","kids":null}]}`))
	f.Add("lookup", []byte(`{"order_id":"1","reason":null}`))
	f.Add("lookup", []byte(` `))
	f.Add("x", []byte(`[1e400]`))
	f.Fuzz(func(t *testing.T, name string, arguments []byte) {
		call, result := b.Prepare(fact.Asked{Name: name, Arguments: arguments}, fact.Ref{}, b.Tools())
		if result != nil {
			if result.Started || result.OK() || result.Message == "" {
				t.Fatalf("result %+v", result)
			}
			return
		}
		again, err := Canonical(call.Input)
		if err != nil || string(again) != string(call.Input) {
			t.Fatalf("input %q is not canonical: %q, %v", call.Input, again, err)
		}
	})
}
