package tools

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// What a shape accepts the validator accepts too, and of plain schemas with plain values it accepts as much.
func TestShape_AgreesWithTheValidator(t *testing.T) {
	t.Parallel()
	schemas := []string{
		`{"type":"object","properties":{"a":{"type":"string","description":"d"},"b":{"type":"integer"}},"required":["a"],"additionalProperties":false}`,
		`{"type":"object","properties":{"list":{"type":"array","items":{"type":"number"}},"o":{"type":"object","properties":{"x":{"type":"boolean"}},"required":["x"]}}}`,
		`{"type":"array","items":{"type":"array","items":{"type":"null"}}}`,
		`{"properties":{"a":{}},"required":["b"]}`,
		`{"type":"object","properties":{"a":{"type":["string","null"]},"list":{"type":["null","array"],"items":{"type":["integer","null"]}}}}`,
		`{"type":"string"}`, `{"type":"integer"}`, `{"type":"number"}`, `{"type":"boolean"}`, `{"type":"null"}`, `{}`,
	}
	values := []string{`"s"`, `1`, `1.5`, `-3`, `true`, `null`, `{}`, `[]`, `[1]`, `["s"]`, `[[]]`, `[[null]]`, `[[1]]`, `[1,null]`}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		var members []string
		for _, name := range []string{"a", "b", "list", "o", "x", "other"} {
			if rng.IntN(3) == 0 {
				members = append(members, fmt.Sprintf(`%q:%s`, name, values[rng.IntN(len(values))]))
			}
		}
		values = append(values, "{"+strings.Join(members, ",")+"}")
	}
	accepted := 0
	for _, raw := range schemas {
		s, faults := compile([]byte(raw), "input")
		if len(faults) > 0 || s.shape == nil {
			t.Fatalf("%s: %v, shape %v", raw, faults, s.shape)
		}
		for _, value := range values {
			v, err := parse([]byte(value))
			if err != nil {
				t.Fatalf("parse %s: %v", value, err)
			}
			want := s.compiled.Validate(v)
			if got := s.shape.accepts(v); got != (want == nil) {
				t.Errorf("%s: %s: accepted %t, the validator says %v", raw, value, got, want)
			} else if got {
				accepted++
			}
		}
	}
	if accepted < 100 {
		t.Errorf("only %d values were accepted; the test says little", accepted)
	}
}

// A schema that says more than a shape holds has none.
func TestShape_LeavesTheRestToTheValidator(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`{"type":["string","null"]}`, `{"type":"string","minLength":2}`, `{"type":"string","enum":["a"]}`, `{"type":"string","format":"date"}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":false}}`,
		`{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"array","items":{"type":"string","pattern":"^a"}}`, `true`,
		`{"type":"array","items":{"type":["string","integer"]}}`, `{"properties":{"a":{"type":["string","integer","null"]}}}`, `{"type":["string"]}`,
	} {
		s, faults := compile([]byte(raw), "input")
		if len(faults) > 0 {
			t.Fatalf("%s: %v", raw, faults)
		}
		if s.shape != nil {
			t.Errorf("%s has the shape %+v", raw, s.shape)
		}
	}
	s, _ := compile([]byte(`{"type":"integer"}`), "input")
	v, err := parse([]byte(`1.0`))
	if err != nil {
		t.Fatal(err)
	}
	if s.shape.accepts(v) || s.validate(v) != nil {
		t.Error("1.0 is an integer, which only the validator knows")
	}
}
