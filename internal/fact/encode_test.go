package fact

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestAppendFact_WritesWhatTheLibraryWrites fills each fact that is encoded by hand at random, some fields empty, and holds it to the
// library, which goes by the tags. A field that is new and not written shows here.
func TestAppendFact_WritesWhatTheLibraryWrites(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 20_000 {
		facts := []Fact{&Responded{}, &Began{}, &Finished{}}
		if i%100 == 0 { // Lists in lists: it takes as long as dozens of others.
			facts = append(facts, &Accepted{})
		}
		for _, f := range facts {
			fill(rng, reflect.ValueOf(f).Elem())
			want, err := c.Marshal(f)
			if err != nil {
				t.Fatalf("Marshal: %v", err)
			}
			got, ok := appendFact(nil, f)
			if !ok || !bytes.Equal(got, want) {
				t.Fatalf("round %d: %+v\nis %x\nnot %x", i, f, got, want)
			}
			if _, first := f.(*Accepted); MostBytes(f) < len(got)+frameHead && (!first || MostBytes(f) != 0) {
				t.Fatalf("round %d: %+v\nhas %d bytes, thought to be at most %d", i, f, len(got)+frameHead, MostBytes(f))
			}
		}
	}
	if _, ok := appendFact(nil, &Ended{}); ok {
		t.Error("the end of a turn is the library's")
	}
}

// The library and we write a map in no order, so one with several keys is held to what it is read as.
func TestAppendFact_WritesAllMetadata(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	want := Accepted{TurnID: "t", Metadata: make(map[string]string)}
	for n := range 300 {
		want.Metadata[strings.Repeat("k", n)] = strings.Repeat("v", 300-n)
		b, ok := appendFact(nil, &want)
		var got Accepted
		if err := c.Unmarshal(b, &got); err != nil || !ok || !maps.Equal(got.Metadata, want.Metadata) {
			t.Fatalf("%d keys: %v, %v", n+1, err, got.Metadata)
		}
		if whole, err := c.Marshal(&want); err != nil || len(whole) != len(b) {
			t.Fatalf("%d keys have %d bytes, not %d, %v", n+1, len(b), len(whole), err)
		}
	}
}

// fill sets a value's fields at random.
func fill(rng *rand.Rand, v reflect.Value) {
	if rng.IntN(4) == 0 {
		return
	}
	switch v.Kind() { //nolint:exhaustive // Facts have no others.
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(rng.Int64N(1<<34), rng.Int64N(1_000)*1_000_000).In(time.FixedZone("", 3600))))
			return
		}
		for _, field := range v.Fields() {
			fill(rng, field)
		}
	case reflect.String:
		v.SetString(strings.Repeat("xyé\xff", rng.IntN(100)))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(rng.Int64() >> rng.IntN(64) * (1 - 2*rng.Int64N(2)))
	case reflect.Map: // Of more than one key the order is no order.
		v.Set(reflect.MakeMap(v.Type()))
		if rng.IntN(2) == 0 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(rng, key)
			fill(rng, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(rng, v.Elem())
	case reflect.Slice:
		n := rng.IntN(40)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(rng, v.Index(i))
		}
	case reflect.Uint8:
		v.SetUint(uint64(rng.IntN(256)))
	case reflect.Interface: // Not stored.
	default:
		panic("fill knows no " + v.Kind().String())
	}
}
