package tools

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type paged struct {
	Page int `json:"page"`
}

type shadowed struct{ Name string }

type otherShadowed struct{ Name string }

type ownJSON struct{}

func (ownJSON) MarshalJSON() ([]byte, error)  { return []byte(`[1]`), nil }
func (*ownJSON) UnmarshalJSON(_ []byte) error { return nil }

type uuid [16]byte

func (uuid) MarshalText() ([]byte, error)  { return []byte("x"), nil }
func (*uuid) UnmarshalText(_ []byte) error { return nil }

type tree struct {
	Left *tree `json:"left"`
}

func TestDeriveInput_FollowsEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		typ  reflect.Type
		want string
	}{
		{
			"no fields", reflect.TypeFor[struct{}](),
			`{"type":"object","properties":{},"required":[],"additionalProperties":false}`,
		},
		{
			"all fields required in their order, pointers nullable",
			reflect.TypeFor[struct {
				Zeta  string  `json:"zeta"           jsonschema:"the last letter"`
				Alpha *int64  `json:"alpha,omitempty"`
				Gamma float32 `json:"gamma,omitzero"`
				Plain bool
				Skip  string `json:"-"`
				inner string
			}](),
			`{"type":"object","properties":{"zeta":{"type":"string","description":"the last letter"},` +
				`"alpha":{"type":["integer","null"]},"gamma":{"type":"number"},"Plain":{"type":"boolean"}},` +
				`"required":["zeta","alpha","gamma","Plain"],"additionalProperties":false}`,
		},
		{
			"lists, maps, bytes and nested structs",
			reflect.TypeFor[struct {
				L []string         `json:"l"`
				A [2]uint8         `json:"a"`
				B []byte           `json:"b"`
				M map[string]int32 `json:"m"`
				S *struct {
					X uint `json:"x"`
				} `json:"s"`
			}](),
			`{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}},` +
				`"a":{"type":"array","minItems":2,"maxItems":2,"items":{"type":"integer"}},` +
				`"b":{"type":"string","contentEncoding":"base64"},` +
				`"m":{"type":"object","additionalProperties":{"type":"integer"}},` +
				`"s":{"type":["object","null"],"properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}},` +
				`"required":["l","a","b","m","s"],"additionalProperties":false}`,
		},
		{
			"types with a JSON form of their own",
			reflect.TypeFor[struct {
				T time.Time       `json:"t"`
				N json.Number     `json:"n"`
				R json.RawMessage `json:"r"`
				O ownJSON         `json:"o"`
				U uuid            `json:"u"`
				D time.Duration   `json:"d"`
				Q *int            `json:"q,string"`
			}](),
			`{"type":"object","properties":{"t":{"type":"string","format":"date-time"},"n":{"type":"number"},"r":{},"o":{},` +
				`"u":{"type":"string"},"d":{"type":"integer"},"q":{"type":["string","null"]}},` +
				`"required":["t","n","r","o","u","d","q"],"additionalProperties":false}`,
		},
		{
			"embedded structs are inlined, the shallower field wins",
			reflect.TypeFor[struct {
				paged
				shadowed
				otherShadowed
				Name bool
			}](),
			`{"type":"object","properties":{"page":{"type":"integer"},"Name":{"type":"boolean"}},` +
				`"required":["page","Name"],"additionalProperties":false}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, faults := deriveInput(tc.typ)
			if len(faults) > 0 {
				t.Fatalf("faults: %v", faults)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
			if _, faults := compileInput(got); len(faults) > 0 {
				t.Errorf("the schema does not compile: %v", faults)
			}
		})
	}
}

func TestDeriveOutput_LeavesOutAndWritesNullWhereEncodingJSONDoes(t *testing.T) {
	t.Parallel()
	type out struct {
		ID    string         `json:"id"`
		Notes []string       `json:"notes"`
		Tags  map[string]int `json:"tags,omitempty"`
		Any   any            `json:"any"`
		Next  *paged         `json:"next,omitzero"`
	}
	raw, faults := deriveOutput(reflect.TypeFor[out]())
	if len(faults) > 0 {
		t.Fatalf("faults: %v", faults)
	}
	s, faults := compile(raw, "output")
	if len(faults) > 0 {
		t.Fatalf("faults: %v", faults)
	}
	for _, v := range []out{
		{}, {Notes: []string{"a"}, Tags: map[string]int{"a": 1}, Any: 1.5, Next: &paged{}}, {Any: []any{nil}},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.compiled.Validate(parsed); err != nil {
			t.Errorf("%s does not fit %s: %v", b, raw, err)
		}
	}
	if raw, _ := deriveOutput(reflect.TypeFor[any]()); raw != nil {
		t.Errorf("a result that may be anything has the schema %s, want none", raw)
	}
}

func TestDeriveInput_NamesWhatHasNoSchema(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		typ  reflect.Type
		want string
	}{
		{"not a struct", reflect.TypeFor[int](), "no input schema follows from int"},
		{"a struct that is a string", reflect.TypeFor[time.Time](), "no input schema follows from time.Time"},
		{"its own JSON", reflect.TypeFor[ownJSON](), "no input schema follows from tools.ownJSON"},
		{"a channel", reflect.TypeFor[struct {
			C struct {
				D chan int `json:"d"`
			} `json:"c"`
		}](), "$.c.d: chan int has no JSON form"},
		{"a map by struct", reflect.TypeFor[struct{ M map[paged]int }](), "$.M: a map with keys of tools.paged has no JSON form"},
		{"a cycle", reflect.TypeFor[tree](), "$.left: tools.tree contains itself"},
		{"two of a name", reflect.TypeFor[struct {
			shadowed
			otherShadowed
		}](), "$: two fields are named Name"},
		{"a tag of another library", reflect.TypeFor[struct {
			A int `json:"a" jsonschema:"minimum=3"`
		}](), "$.a: its jsonschema tag starts with minimum="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, faults := deriveInput(tc.typ)
			if len(faults) != 1 || !strings.Contains(faults[0].text, tc.want) {
				t.Errorf("faults are %v, want one with %q", faults, tc.want)
			}
		})
	}
}
