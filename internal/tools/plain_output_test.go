package tools

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

type plainResult struct {
	Text   string    `json:"text" jsonschema:"what was found"`
	Name   plainName `json:"name,omitempty"`
	Yes    bool      `json:"yes"`
	Maybe  bool      `json:"maybe,omitempty"`
	Small  int8      `json:"small"`
	Count  int64     `json:"count,omitempty"`
	Sure   uint64    `json:"sure"`
	Ratio  float64   `json:"ratio"`
	Rough  float32   `json:"rough"`
	Rest   float64   `json:"rest,omitempty"`
	Untold string
	hidden string
	Never  string `json:"-"`
	Dash   int    `json:"-,"` //nolint:staticcheck // It is named so.
}

// What is written without encoding/json is, byte for byte, what parsing its JSON gives, and it fits the derived schema.
func TestPlainOutput_WritesWhatParsingGives(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeFor[plainResult]()
	p := plainOutputOf(typ)
	if p == nil {
		t.Fatal("the struct is plain")
	}
	raw, faults := deriveOutput(typ)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	s, faults := compile(raw, "output")
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	texts := []string{"", "a", "é😀", "<&>\u2028\u2029", "\x00\x1f\x7f\"\\/\b\f\n\r\t", "\uFFFD"}
	floats := []float64{
		0, math.Copysign(0, -1), 1, -1.5, 1e-6, 9.99e-7, 1e-7, 1e-10, 1e20, 1e21, 1e22, 9.999999e20, math.MaxFloat64, math.SmallestNonzeroFloat64, 123456789.125,
		math.MaxFloat32, math.SmallestNonzeroFloat32, math.Inf(1), math.NaN(), math.Nextafter(1e-6, 0), math.Nextafter(1e21, 0),
		float64(math.Nextafter32(1e-6, 0)), float64(float32(1e-6)), float64(math.Nextafter32(1e-6, 1)), float64(math.Nextafter32(1e21, 0)), float64(float32(1e21)),
	}
	r := rand.New(rand.NewPCG(1, 2))
	float := func() float64 {
		if r.IntN(2) == 0 {
			return math.Float64frombits(r.Uint64())
		}
		return floats[r.IntN(len(floats))]
	}
	text := func() string {
		if r.IntN(16) == 0 {
			return []string{"\xff", "a\xff\xfeb", "\xed\xa0\x80"}[r.IntN(3)]
		}
		return texts[r.IntN(len(texts))]
	}
	written := 0
	for range 20_000 {
		v := plainResult{
			text(), plainName(text()), r.IntN(2) == 0, r.IntN(2) == 0, int8(r.Int()), int64(r.Uint64()) >> r.IntN(64), r.Uint64() >> r.IntN(64),
			float(), float32(float()), float(), text(), "hidden", "never", r.IntN(3),
		}
		b, err := json.Marshal(v) //nolint:musttag // A field without a tag is a case.
		got := p.encode(v)
		if err != nil && got != nil {
			t.Fatalf("%+v gave %s, encoding/json says %v", v, got, err)
		}
		if got == nil {
			continue
		}
		written++
		parsed, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if want := appendValue(nil, parsed); string(got) != string(want) {
			t.Fatalf("%+v gave %s, want %s", v, got, want)
		}
		if err := s.compiled.Validate(parsed); err != nil {
			t.Fatalf("%s does not fit %s: %v", got, raw, err)
		}
	}
	if written < 10_000 {
		t.Errorf("only %d of 20,000 values were written", written)
	}
}

// ownText writes itself as text, and pointerJSON would if it could be addressed.
type (
	ownText     int
	pointerJSON int
)

func (ownText) MarshalText() ([]byte, error)      { return []byte("own"), nil }
func (*pointerJSON) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

func TestPlainOutput_LeavesWhatIsNotPlainToEncodingJSON(t *testing.T) {
	t.Parallel()
	type inner struct{ A int }
	for _, typ := range []reflect.Type{
		reflect.TypeFor[int](), reflect.TypeFor[any](), reflect.TypeFor[map[string]string](), reflect.TypeFor[time.Time](), reflect.TypeFor[*inner](),
		reflect.TypeFor[struct{ inner }](), reflect.TypeFor[struct{ A inner }](), reflect.TypeFor[struct{ A *string }](),
		reflect.TypeFor[struct{ A []string }](), reflect.TypeFor[struct{ A any }](), reflect.TypeFor[struct{ A time.Time }](),
		reflect.TypeFor[struct{ A json.Number }](), reflect.TypeFor[struct{ A json.RawMessage }](), reflect.TypeFor[struct{ A uintptr }](),
		reflect.TypeFor[struct{ A ownText }](), reflect.TypeFor[struct{ A pointerJSON }](), reflect.TypeFor[struct{ A complex64 }](),
		reflect.TypeFor[struct {
			A int `json:"a,string"`
		}](),
		reflect.TypeFor[struct {
			A int `json:"a,omitzero"`
		}](),
		reflect.TypeFor[struct {
			A int `json:",omitempty,string"`
		}](),
		tagged("b", "b"), tagged(`ä`), tagged(`a.b`),
	} {
		if plainOutputOf(typ) != nil {
			t.Errorf("%s is taken for plain", typ)
		}
	}
}

// A tool with a schema of its own is held to it, be its results plain or not.
func TestPlainOutput_IsForDerivedSchemas(t *testing.T) {
	t.Parallel()
	type out struct {
		N int `json:"n"`
	}
	run := func(*Context, struct{}) (out, error) { return out{7}, nil }
	if Define("derived", run, reads()).out == nil {
		t.Error("a plain result is left to encoding/json")
	}
	own := with(reads(), func(o *Options) { o.Output = json.RawMessage(`{"properties":{"n":{"maximum":6}}}`) })
	r, _ := newRuntime(t, Deps{})
	b := bindAll(t, r, AgentBinding{}, Define("own", run, own))
	result := execute(t, t.Context(), b, mustPrepare(t, b, "own", ""))
	if want := "tool own gave an invalid result: $.n: expected at most 6"; result.Message != want {
		t.Errorf("got %+v, want the message %q", result, want)
	}
}
