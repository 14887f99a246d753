package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// flatShapes are schemas that have a shape.
func flatShapes(tb testing.TB) []*schema {
	tb.Helper()
	var list []*schema
	for _, raw := range []string{
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":["integer","null"]}},"required":["a"],"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":["null","array"],"items":{"type":"number"}},"é":{"type":"boolean"}},"required":["b","z"]}`,
		`{"type":"array","items":{"type":["object","null"],"properties":{"a":{"type":"null"}}}}`,
		`{"properties":{"a":{},"b":{"type":"object","additionalProperties":false}}}`, `{"type":"string"}`, `{"type":"integer"}`, `{}`,
	} {
		s, faults := compile([]byte(raw), "input")
		if len(faults) > 0 || s.shape == nil {
			tb.Fatalf("%s: %v, no shape", raw, faults)
		}
		list = append(list, s)
	}
	return list
}

// checkFlat holds what is read flat to what parse makes of the same bytes. It returns how the flat value was taken.
func checkFlat(tb testing.TB, raw []byte, depth int, shapes []*schema) (read bool, accepted int) {
	tb.Helper()
	var f flat
	f.read(raw, depth)
	if !f.ok {
		return false, 0
	}
	v, err := parseWithin(raw, depth)
	if err != nil {
		tb.Fatalf("%q is read flat, but: %v", raw, err)
	}
	if got, want := f.append(nil, 0), appendValue(nil, v); !bytes.Equal(got, want) {
		tb.Fatalf("%q: flat it gives %s, parsed %s", raw, got, want)
	}
	for _, s := range shapes {
		got := s.fits(&f)
		if got != s.shape.accepts(v) || got && s.compiled.Validate(v) != nil {
			tb.Fatalf("%q: %s: accepted %t, parsed %t, the validator says %v", raw, s.raw, got, !got, s.compiled.Validate(v))
		}
		if got {
			accepted++
		}
	}
	args, ok := v.(map[string]any)
	if ok != (f.few[0].kind == '{') {
		tb.Fatalf("%q: one of both says that it is an object", raw)
	}
	if ok {
		checkFill(tb, raw, &f, args)
	}
	return true, accepted
}

func checkFill(tb testing.TB, raw []byte, f *flat, args map[string]any) {
	tb.Helper()
	var got, want plainArgs
	p := plainStructOf(reflect.TypeFor[plainArgs]())
	filled := p.fillFlat(reflect.ValueOf(&got).Elem(), f)
	if filled != p.fill(reflect.ValueOf(&want).Elem(), args) || filled && got != want {
		tb.Fatalf("%q: filled in %t, %+v; want %+v", raw, filled, got, want)
	}
}

// randomJSON is nearly JSON: now and then a byte is another.
func randomJSON(r *rand.Rand) []byte {
	b := randomValue(nil, r, 0)
	if r.IntN(4) == 0 {
		const other = "{}[]\",:\\u0tfn -1e.\x00\xff"
		b[r.IntN(len(b))] = other[r.IntN(len(other))]
	}
	return b
}

func randomValue(b []byte, r *rand.Rand, depth int) []byte {
	texts := []string{
		`""`, `"a"`, `"b"`, `"text"`, `"name"`, `"yes"`, `"count"`, `"ratio"`, `"é"`, `"\u00e9"`, `"\u0061"`, `"a\n\"\\\/\b\f\r\t"`, `"\ud83d\ude00"`, `"\ud800"`,
		`"\u001F\u007f"`, "\"\xff\xfe\"", "\"\\n\xff\"", `"<&>\u2028"`, `"\x"`, `"\u12"`,
	}
	pad := []string{"", "", "", " ", "\n\t"}
	space := func() { b = append(b, pad[r.IntN(len(pad))]...) }
	space()
	defer space()
	switch n := r.IntN(8); {
	case n < 2 && depth < 5:
		b = append(b, '{')
		for i := range r.IntN(5) {
			if i > 0 {
				b = append(b, ',')
			}
			space()
			b = append(append(b, texts[r.IntN(len(texts)-2)]...), ':')
			b = randomValue(b, r, depth+1)
		}
		return append(b, '}')
	case n < 3 && depth < 5:
		b = append(b, '[')
		for i := range r.IntN(5) {
			if i > 0 {
				b = append(b, ',')
			}
			b = randomValue(b, r, depth+1)
		}
		return append(b, ']')
	case n < 5:
		return append(b, texts[r.IntN(len(texts))]...)
	case n < 6:
		return append(b, []string{"true", "false", "null"}[r.IntN(3)]...)
	}
	numbers := []string{"0", "-0", "12", "-3", "1.50", "1e2", "1E+09", "300", "1e400", "1e401", "01", "9223372036854775808", strings.Repeat("1", 129)}
	return append(b, numbers[r.IntN(len(numbers))]...)
}

// What is read flat has the canonical form, fits the shapes and fills the structs as what parse makes of it; and most is read flat.
func TestFlat_IsWhatParseMakes(t *testing.T) {
	t.Parallel()
	shapes := flatShapes(t)
	r := rand.New(rand.NewPCG(1, 2))
	read, parsed, accepted := 0, 0, 0
	for range 30_000 {
		raw := randomJSON(r)
		ok, n := checkFlat(t, raw, 4, shapes)
		accepted += n
		if ok {
			read++
		}
		if _, err := parseWithin(raw, 4); err == nil {
			parsed++
		}
	}
	if read < 10_000 || read < parsed*9/10 || accepted < 10_000 {
		t.Errorf("%d of %d were read flat, accepted %d times; the test says little", read, parsed, accepted)
	}
}

// What is large or has a key twice is parsed, and comes out the same.
func TestFlat_LeavesTheRestToParse(t *testing.T) {
	t.Parallel()
	object := func(n int, key func(i int) int) string {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf(`"k%05d":%d`, key(i), i))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	backwards := func(i int) int { return 99_999 - i }
	list := func(n int) string { return "[" + strings.Repeat("1,", n-2) + "1]" } // n tokens
	for _, tc := range []struct {
		name, raw string
		flat      bool
	}{
		{"an object of many members", object(maxMembers, backwards), true},
		{"one of more", object(maxMembers+1, backwards), false},
		{"one of far more", object(50_000, backwards), false},
		{"one key, many times", object(50_000, func(int) int { return 1 }), false},
		{"a key twice", `{"a":1,"b":2,"a":3}`, false},
		{"a key twice, once with an escape", `{"a":1,"\u0061":3}`, false},
		{"a long list", list(maxTokens), true},
		{"a longer one", list(maxTokens + 1), false},
		{"two values", `1 2`, false},
		{"nothing", ` `, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if read, _ := checkFlat(t, []byte(tc.raw), maxDepth, nil); read != tc.flat {
				t.Errorf("read flat: %t, want %t", read, tc.flat)
			}
			v, want := parse([]byte(tc.raw))
			got, err := Canonical([]byte(tc.raw))
			if fmt.Sprint(err) != fmt.Sprint(want) || want == nil && !bytes.Equal(got, appendValue(nil, v)) {
				t.Errorf("got %.100s, %v; want %v", got, err, want)
			}
		})
	}
}

func TestUnescape_GivesWhatEncodingJSONReads(t *testing.T) {
	t.Parallel()
	parts := []string{"a", "é", " ", `\n`, `\"`, `\\`, `\/`, `\b`, `\f`, `\r`, `\t`, `\u0000`, `\u00E9`, `\uabCD`, `\uD83D\uDE00`, `\udc00`, `\uFFFF`, `\u12`, `\u00g0`, `\x`, "\xff", "\u2028"}
	r := rand.New(rand.NewPCG(1, 2))
	done := 0
	for range 20_000 {
		var b []byte
		for range r.IntN(5) {
			b = append(b, parts[r.IntN(len(parts))]...)
		}
		inner := string(b)
		got, ok := appendUnescaped([]byte("-"), []byte(inner))
		if !ok {
			continue
		}
		done++
		var want string
		if err := json.Unmarshal([]byte(`"`+inner+`"`), &want); err != nil || string(got) != "-"+want {
			t.Fatalf("%q gave %q; encoding/json reads %q, %v", inner, got, want, err)
		}
	}
	if done < 8_000 {
		t.Errorf("only %d texts were unescaped", done)
	}
}

func FuzzFlat(f *testing.F) {
	for _, seed := range []string{`{"b":1,"a":[null,true,"x\u0000"]}`, `{"text":"\n","count":1}`, `"\ud800"`, ` [] `, `{"a":1,"a":2}`, "\"\x80\"", `{}{}`} {
		f.Add([]byte(seed))
	}
	shapes := flatShapes(f)
	f.Fuzz(func(t *testing.T, raw []byte) { checkFlat(t, raw, maxDepth, shapes) })
}
