package tools

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestCanonical_IsCompactSortedAndKeepsNumbers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, want string }{
		{"sorted and compact", " { \"b\" : [ 1 , 2 ] , \"a\" : { \"d\":null, \"c\":true } } ", `{"a":{"c":true,"d":null},"b":[1,2]}`},
		{"numbers as they were", `[1.0,1e2,-0,12345678901234567890,0.10]`, `[1.0,1e2,-0,12345678901234567890,0.10]`},
		{"strings escape little", `"<a href='x'>\u00e9\u2028 \u001f\"\\\/\b"`, "\"<a href='x'>é\u2028 \\u001f\\\"\\\\/\\b\""},
		{"the last of a double key", `{"a":1,"a":2}`, `{"a":2}`},
		{"half a surrogate", `"\ud800"`, "\"\uFFFD\""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := Canonical([]byte(tc.in))
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}

func TestCanonical_RefusesWhatIsOutOfBounds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", ``, "not valid JSON"},
		{"two values", `{} {}`, "more than one value, the next at byte 3"},
		{"cut off", `{"a":`, "not valid JSON"},
		{"too deep", strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), "nested more than 64 deep"},
		{"very deep", strings.Repeat(`{"a":`, 1<<16), "nested more than 64 deep"},
		{"a control character", "\"a\nb\"", "not valid JSON at byte 2"},
		{"a bad escape", `"\x"`, "not valid JSON"},
		{"a word cut off", `[tru`, "not valid JSON at byte 1"},
		{"a leading zero", `01`, "not valid JSON"},
		{"no digit after the point", `1.`, "it ends too early"},
		{"a bare minus", `-`, "it ends too early"},
		{"a trailing comma", `[1,]`, "not valid JSON at byte 3"},
		{"a key that is no string", `{1:2}`, "not valid JSON at byte 1"},
		{"an exponent with nothing", `1e+`, "it ends too early"},
		{"a huge exponent", `1e999999999`, "exponent beyond 400"},
		{"a long number", strings.Repeat("1", 129), "more than 128 characters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got, err := Canonical([]byte(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %s, %v; want an error with %q", got, err, tc.want)
			}
		})
	}
	deepest := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	if _, err := Canonical([]byte(deepest)); err != nil {
		t.Errorf("%d deep: %v, want none", maxDepth, err)
	}
}

func TestCanonicalJSON_WritesStructsSorted(t *testing.T) {
	t.Parallel()
	got, err := CanonicalJSON(struct {
		Z string  `json:"z"`
		A float64 `json:"a"`
	}{"<&>", 1e21})
	if err != nil || string(got) != `{"a":1e+21,"z":"<&>"}` {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := CanonicalJSON(make(chan int)); err == nil {
		t.Error("a channel has a canonical form, want an error")
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"b":1,"a":[null,true,"x\u0000"]}`, `1e5`, `"\ud800"`, ` [] `, `{"a":{"a":{"a":-0.0}}}`, "\"\x80\"", `{}{}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := Canonical(raw)
		if err != nil {
			if json.Valid(raw) && strings.Contains(err.Error(), "not valid JSON") {
				t.Fatalf("%q is JSON, but: %v", raw, err)
			}
			return
		}
		if !json.Valid(raw) || !json.Valid(once) {
			t.Fatalf("%q gave %q: not both are JSON", raw, once)
		}
		twice, err := Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%q: the canonical form %q of it gave %q, %v", raw, once, twice, err)
		}
		var want, got any
		if json.Unmarshal(raw, &want) == nil && json.Unmarshal(once, &got) == nil {
			a, _ := json.Marshal(want)
			b, _ := json.Marshal(got)
			if !bytes.Equal(a, b) {
				t.Fatalf("%q means %s, its canonical form %s", raw, a, b)
			}
		}
	})
}
