package tools

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

type plainName string

type plainArgs struct {
	Text   string    `json:"text"`
	Name   plainName `json:"name,omitempty"`
	Yes    bool      `json:"yes"`
	Small  int8      `json:"small"`
	Count  int       `json:"count"`
	Sure   uint16    `json:"sure"`
	Ratio  float64   `json:"ratio"`
	Rough  float32   `json:"rough"`
	Untold string
	hidden string //nolint:unused // For encoding/json it is not there.
	Never  string `json:"-"`
}

// What is filled in from parsed arguments is what encoding/json reads of their canonical form; what it refuses is refused.
func TestPlainStruct_FillsInWhatEncodingJSONReads(t *testing.T) {
	t.Parallel()
	p := plainStructOf(reflect.TypeFor[plainArgs]())
	if p == nil {
		t.Fatal("the struct is plain")
	}
	values := []string{
		`""`, `"a"`, `"\u00e9\ud83d\ude00 \n"`, `"\ud800"`, "\"\xff\"", `true`, `false`, `null`, `0`, `-0`, `1`, `127`, `128`, `-129`, `70000`, `1.0`, `1e2`, `0.1`,
		`1e400`, `3.5e38`, `1e-320`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `[]`, `{}`, `{"a":1}`,
	}
	names := []string{"text", "Text", "name", "yes", "small", "count", "sure", "ratio", "rough", "Untold", "untold", "hidden", "Never", "-", "other"}
	r := rand.New(rand.NewPCG(1, 2))
	filled := 0
	for range 20_000 {
		var members []string
		for _, i := range r.Perm(len(names))[:r.IntN(4)] {
			members = append(members, fmt.Sprintf("%q:%s", names[i], values[r.IntN(len(values))]))
		}
		text := "{" + strings.Join(members, ",") + "}"
		args, err := parseObject([]byte(text), 10)
		if err != nil {
			continue
		}
		var got, want plainArgs
		if !p.fill(reflect.ValueOf(&got).Elem(), args) {
			continue
		}
		filled++
		if err := json.Unmarshal(appendValue(nil, args), &want); err != nil || got != want { //nolint:musttag // A field without a tag is a case.
			t.Fatalf("%s: filled in %+v, encoding/json reads %+v, %v", text, got, want, err)
		}
	}
	if filled < 5000 {
		t.Errorf("only %d of 20,000 objects were filled in", filled)
	}
}

// tagged is a struct with fields of these names in JSON.
func tagged(names ...string) reflect.Type {
	var fields []reflect.StructField
	for i, name := range names {
		fields = append(fields, reflect.StructField{
			Name: string(rune('A' + i)), Type: reflect.TypeFor[int](), Tag: reflect.StructTag(`json:"` + name + `"`),
		})
	}
	return reflect.StructOf(fields)
}

func TestPlainStruct_LeavesWhatIsNotPlainToEncodingJSON(t *testing.T) {
	t.Parallel()
	type inner struct{ A int }
	for _, typ := range []reflect.Type{
		reflect.TypeFor[int](), reflect.TypeFor[map[string]string](), reflect.TypeFor[time.Time](),
		reflect.TypeFor[struct{ inner }](), reflect.TypeFor[struct{ A inner }](), reflect.TypeFor[struct{ A *string }](),
		reflect.TypeFor[struct{ A []string }](), reflect.TypeFor[struct{ A any }](), reflect.TypeFor[struct{ A time.Time }](),
		reflect.TypeFor[struct{ A json.Number }](), reflect.TypeFor[struct{ A json.RawMessage }](),
		reflect.TypeFor[struct {
			A int `json:"a,string"`
		}](),
		tagged("b", "b"), tagged(`ä`), tagged(`a.b`),
	} {
		if plainStructOf(typ) != nil {
			t.Errorf("%s is taken for plain", typ)
		}
	}
}
