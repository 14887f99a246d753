package tools

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustCompile(t *testing.T, raw string) *schema {
	t.Helper()
	s, faults := compileInput([]byte(raw))
	if len(faults) > 0 {
		t.Fatalf("compile %s: %v", raw, faults)
	}
	return s
}

// Each case gives arguments as a model held to the strict schema writes them, and what the tool must get. Whatever the strict
// schema allows must, stripped, fit the tool's own.
func TestMakeStrict_KeepsTheMeaningForTheTool(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, schema, want string
		// args maps what the model writes to what the tool gets.
		args map[string]string
	}{
		{
			"an optional property may be null and is stripped",
			`{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"integer"}},"required":["b"]}`,
			`{"additionalProperties":false,"properties":{"a":{"type":["integer","null"]},"b":{"type":"string"}},` +
				`"required":["b","a"],"type":"object"}`,
			map[string]string{`{"b":"x","a":null}`: `{"b":"x"}`, `{"b":"x","a":1}`: `{"a":1,"b":"x"}`},
		},
		{
			"a null that the tool knows stays",
			`{"type":"object","properties":{"a":{"type":["integer","null"]}},"required":["a"],"additionalProperties":false}`,
			`{"type":"object","properties":{"a":{"type":["integer","null"]}},"required":["a"],"additionalProperties":false}`,
			map[string]string{`{"a":null}`: `{"a":null}`},
		},
		{
			"enum, const, anyOf and $ref become nullable",
			`{"type":"object","properties":{"e":{"type":"string","enum":["x","y"]},"c":{"const":3},"o":{"anyOf":[{"type":"string"},{"type":"integer"}]},` +
				`"r":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"object","properties":{"n":{"type":"integer"}}}}}`,
			`{"$defs":{"p":{"additionalProperties":false,"properties":{"n":{"type":["integer","null"]}},"required":["n"],"type":"object"}},` +
				`"additionalProperties":false,"properties":{"c":{"anyOf":[{"const":3},{"type":"null"}]},` +
				`"e":{"enum":["x","y",null],"type":["string","null"]},"o":{"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]},` +
				`"r":{"anyOf":[{"$ref":"#/$defs/p"},{"type":"null"}]}},"required":["c","e","o","r"],"type":"object"}`,
			map[string]string{
				`{"c":null,"e":null,"o":null,"r":null}`:  `{}`,
				`{"c":3,"e":"x","o":1,"r":{"n":null}}`:   `{"c":3,"e":"x","o":1,"r":{}}`,
				`{"c":null,"e":"y","o":"s","r":{"n":7}}`: `{"e":"y","o":"s","r":{"n":7}}`,
			},
		},
		{
			"lists and recursion are stripped all the way",
			`{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#"}}},"required":["kids"]}`,
			`{"additionalProperties":false,"properties":{"kids":{"items":{"$ref":"#"},"type":"array"},"v":{"type":["integer","null"]}},` +
				`"required":["kids","v"],"type":"object"}`,
			map[string]string{`{"v":1,"kids":[{"v":null,"kids":[{"v":null,"kids":[]}]}]}`: `{"kids":[{"kids":[{"kids":[]}]}],"v":1}`},
		},
		{
			"a nullable object is stripped inside",
			`{"type":"object","properties":{"p":{"anyOf":[{"type":"object","properties":{"n":{"type":"integer"}}},{"type":"null"}]}},"required":["p"]}`,
			`{"additionalProperties":false,"properties":{"p":{"anyOf":[{"additionalProperties":false,"properties":{"n":{"type":["integer","null"]}},` +
				`"required":["n"],"type":"object"},{"type":"null"}]}},"required":["p"],"type":"object"}`,
			map[string]string{`{"p":{"n":null}}`: `{"p":{}}`, `{"p":null}`: `{"p":null}`},
		},
		{
			"bounds move into the description",
			`{"type":"object","properties":{"n":{"type":"integer","minimum":1,"description":"how many","default":2,"title":"N"},"d":{"type":"string","format":"date"},"p":{"type":"string","format":"phone"}},"required":["n","d","p"]}`,
			`{"additionalProperties":false,"properties":{"d":{"format":"date","type":"string"},` +
				`"n":{"description":"how many (minimum: 1, default: 2)","type":"integer"},` +
				`"p":{"description":"(format: phone)","type":"string"}},"required":["n","d","p"],"type":"object"}`,
			map[string]string{`{"n":1,"d":"","p":""}`: `{"d":"","n":1,"p":""}`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, tc.schema)
			raw, strip, faults := makeStrict(s)
			if len(faults) > 0 {
				t.Fatalf("faults: %v", faults)
			}
			if diff := cmp.Diff(tc.want, string(raw)); diff != "" {
				t.Errorf("strict schema (-want +got):\n%s", diff)
			}
			strict := mustCompile(t, string(raw))
			for model, tool := range tc.args {
				args, err := parse([]byte(model))
				if err != nil {
					t.Fatal(err)
				}
				if err := strict.compiled.Validate(args); err != nil {
					t.Errorf("%s does not fit the strict schema: %v", model, err)
				}
				strip.apply(args)
				if err := s.compiled.Validate(args); err != nil {
					t.Errorf("%s does not fit the tool's schema when stripped: %v", model, err)
				}
				if got := string(appendValue(nil, args)); got != tool {
					t.Errorf("%s reaches the tool as %s, want %s", model, got, tool)
				}
			}
		})
	}
}

func TestMakeStrict_LeavesDerivedSchemasAsTheyAre(t *testing.T) {
	t.Parallel()
	raw, faults := deriveInput(reflect.TypeFor[struct {
		Z string   `json:"z" jsonschema:"first"`
		A *int     `json:"a"`
		L []string `json:"l"`
		S struct {
			N int `json:"n"`
		} `json:"s"`
	}]())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	got, strip, faults := makeStrict(mustCompile(t, string(raw)))
	if string(got) != string(raw) || strip != nil || len(faults) > 0 {
		t.Errorf("got %s, strip %v, faults %v; want %s unchanged", got, strip, faults, raw)
	}
}

func TestMakeStrict_RefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, schema, want string }{
		{"a map", `{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"string"}}}}`, "$.m is a map with free keys"},
		{"a free object", `{"type":"object","properties":{"m":{"type":"object"}}}`, "$.m is an object without properties"},
		{"anything", `{"type":"object","properties":{"a":{}}}`, "$.a takes any value"},
		{"true", `{"type":"object","properties":{"a":true}}`, "$.a takes any value"},
		{"a list of anything", `{"type":"object","properties":{"a":{"type":"array"}}}`, "$.a is an array of anything"},
		{"allOf", `{"type":"object","properties":{"a":{"type":"object","allOf":[{"type":"object"}]}}}`, "$.a uses allOf"},
		{"patterns", `{"type":"object","patternProperties":{"^x":{"type":"string"}}}`, "$ uses patternProperties"},
		{"a reference elsewhere", `{"type":"object","properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}}}`, "$.b refers to #/properties/a"},
		{
			"an optional property in alternatives",
			`{"type":"object","properties":{"a":{"anyOf":[{"type":"object","properties":{"x":{"type":"string"}}},{"type":"object","properties":{"y":{"type":"string"}},"required":["y"]}]}}}`,
			"$.a has an optional property in one of several alternatives",
		},
		{"alternatives at the top", `{"type":"object","anyOf":[{"type":"object"}]}`, "$ is composed of other schemas"},
		{"required but not described", `{"type":"object","required":["a"]}`, "$ requires a, which it does not describe"},
		{"in a definition", `{"type":"object","$defs":{"d":{"type":"object","properties":{"m":{}}}}}`, "$defs.d.m takes any value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, _, faults := makeStrict(mustCompile(t, tc.schema))
			for _, f := range faults {
				if strings.Contains(f.text, tc.want) && f.fix != "" {
					return
				}
			}
			t.Errorf("faults are %v, want one with %q", faults, tc.want)
		})
	}
}

func TestStrip_EndsOnReferencesThatLeadNowhere(t *testing.T) {
	t.Parallel()
	a, b := &strip{}, &strip{}
	a.same, b.same = b, a
	a.apply(map[string]any{"x": nil})
	if a.needed(map[*strip]bool{}) {
		t.Error("a loop of references strips something")
	}
}
