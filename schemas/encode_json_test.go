package schemas

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
	"unicode/utf8"
)

// The same types without our MarshalJSON, which encoding/json then writes by reflection.
type (
	plainTool   ToolEvent
	plainTurn   TurnOutput
	plainStatus StatusEvent
)

// byReflection is what encoding/json makes of an event.
func byReflection(tb testing.TB, ev any) []byte {
	tb.Helper()
	switch e := ev.(type) {
	case *ToolEvent:
		ev = (*plainTool)(e)
	case *TurnOutput:
		ev = (*plainTurn)(e)
	case *StatusEvent:
		ev = (*plainStatus)(e)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(ev); err != nil {
		tb.Fatal(err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n")
}

func jsonEncoder(tb testing.TB) Encoder {
	tb.Helper()
	e, err := NewEncoder(EncodingJSON, EncoderOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func TestJSON_IsWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	for name, ev := range outputs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := encodeAny(t, jsonEncoder(t), ev), byReflection(t, ev)
			if !bytes.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestJSON_IsWhatEncodingJSONWritesForAnyText(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	e := jsonEncoder(t)
	for range 2000 {
		tool, turn, status := sampleToolResult(), sampleTurnEnd(), sampleStatus()
		tool.Message, tool.Tool, tool.ID = randomString(r), randomString(r), randomString(r)
		tool.Metadata = map[string]string{randomString(r): randomString(r), randomString(r): randomString(r)}
		tool.Output = randomJSON(r, 4)
		turn.Text, turn.Message = new(randomString(r)), randomString(r)
		turn.Calls = []AskedCall{{randomString(r), randomString(r), randomJSON(r, 3)}}
		turn.Output, turn.CostMicros = randomJSON(r, 3), new(int64(r.Uint64()))
		status.Text = randomString(r) + "\xff" + randomString(r)
		for _, ev := range []any{tool, turn, status} {
			if got, want := encodeAny(t, e, ev), byReflection(t, ev); !bytes.Equal(got, want) {
				t.Fatalf("got  %s\nwant %s", got, want)
			}
		}
	}
}

// randomJSON draws JSON with white space in odd places.
func randomJSON(r *rand.Rand, depth int) json.RawMessage {
	space := []string{"", "", " ", "\n\t"}[r.IntN(4)]
	var b []byte
	switch k := r.IntN(7); {
	case depth > 0 && k == 0:
		b = append(b, "["+space...)
		for i := range r.IntN(3) {
			if i > 0 {
				b = append(b, ","+space...)
			}
			b = append(b, randomJSON(r, depth-1)...)
		}
		b = append(b, space+"]"...)
	case depth > 0 && k == 1:
		b = append(b, "{"+space...)
		for i := range r.IntN(3) {
			if i > 0 {
				b = append(b, space+","...)
			}
			key, _ := json.Marshal(randomString(r))
			b = append(append(b, key...), space+":"+space...)
			b = append(b, randomJSON(r, depth-1)...)
		}
		b = append(b, space+"}"...)
	case k == 2:
		b = append(b, []string{"true", "false", "null"}[r.IntN(3)]...)
	case k == 3:
		b = append(b, []string{"0", "-0.5", "1e9", "12.50E-3", "123456789012345678901"}[r.IntN(5)]...)
	default:
		b, _ = json.Marshal(randomString(r))
	}
	return b
}

func TestJSON_TimesAreUTCWithMilliseconds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		at   time.Time
		want string
	}{
		{"full second", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "2026-01-02T03:04:05.000Z"},
		{"microseconds are cut", time.Date(2026, 12, 31, 23, 59, 59, 999999999, time.UTC), "2026-12-31T23:59:59.999Z"},
		{"other zones", time.Date(2026, 1, 2, 1, 4, 5, 7e6, time.FixedZone("", -3*3600)), "2026-01-02T04:04:05.007Z"},
		{"no time", time.Time{}, "0001-01-01T00:00:00.000Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := encodeAny(t, jsonEncoder(t), &StatusEvent{Envelope: Envelope{At: tc.at}})
			var got struct {
				At string `json:"at"`
			}
			if err := json.Unmarshal(b, &got); err != nil || got.At != tc.want {
				t.Errorf("got %q (%v), want %q", got.At, err, tc.want)
			}
		})
	}
}

func TestEncode_RefusesWhatWouldSpoilTheRecord(t *testing.T) {
	t.Parallel()
	bad := []string{`{`, `{}x`, ` `, `{"a":}`, "\"\xff\"", `nul`, `01`, "\"\n\""}
	single, err := NewEncoder(EncodingAvroSingle, EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Encoder{jsonEncoder(t), single} {
		for _, raw := range bad {
			ev := sampleToolResult()
			ev.Output = json.RawMessage(raw)
			if b, err := e.EncodeTool(ev); err == nil {
				t.Errorf("output %q was written: %s", raw, b)
			}
			turn := sampleTurnStep()
			turn.Calls[0].Arguments = json.RawMessage(raw)
			if b, err := e.EncodeTurn(turn); err == nil {
				t.Errorf("arguments %q were written: %s", raw, b)
			}
		}
	}
	if _, err := jsonEncoder(t).EncodeStatus(&StatusEvent{Envelope: Envelope{At: time.Unix(1<<40, 0)}}); err == nil {
		t.Error("a year beyond 9999 was written")
	}
}

func FuzzJSONString(f *testing.F) {
	f.Add("plain")
	f.Add("\"\\\x00\u2028\xff\xc3(")
	f.Fuzz(func(t *testing.T, s string) {
		ev := &StatusEvent{Envelope: Envelope{At: sampleTime}, Text: s}
		got := encodeAny(t, jsonEncoder(t), ev)
		if want := byReflection(t, ev); !bytes.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"\u00e9\"",null,true]} `, `[[[]]]`, `"\ud800"`, `{"a":1,}`, `-`, `0x`, ` `, "[1\x00]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := checkJSON(b, 10000)
		if want := json.Valid(b) && utf8.Valid(b); (err == nil) != want {
			t.Fatalf("%q: got %v, json.Valid says %v", b, err, want)
		}
		if err != nil || len(b) > 1<<12 {
			return
		}
		i := skipJSONSpace(b, 0)
		if end := skipJSON(b, i); skipJSONSpace(b, end) != len(b) {
			t.Fatalf("%q: skipped to %d", b, end)
		}
		switch b[i] {
		case '{':
			var want map[string]json.RawMessage
			if err := json.Unmarshal(b, &want); err != nil {
				return
			}
			got := make(map[string]json.RawMessage)
			eachMember(b[i:], func(k string, v []byte) { got[k] = v })
			wantEqual(t, got, want)
		case '[':
			var want []json.RawMessage
			if err := json.Unmarshal(b, &want); err != nil {
				return
			}
			got := []json.RawMessage{}
			eachItem(b[i:], func(_ int, v []byte) { got = append(got, v) })
			wantEqual(t, got, want)
		}
	})
}

func TestCheckJSON_LimitsDepth(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		depth int
		ok    bool
	}{{"at the limit", 8, true}, {"one beyond", 9, false}, {"a million", 1 << 20, false}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := append(bytes.Repeat([]byte("["), tc.depth), bytes.Repeat([]byte("]"), tc.depth)...)
			if err := checkJSON(b, 8); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSkipJSON_IsLinearInEscapes(t *testing.T) {
	t.Parallel()
	// A string of nothing but escapes once made the search for its end start again at each of them.
	b := append([]byte(`{"a":"`), bytes.Repeat([]byte(`\\\"`), 1<<20)...)
	b = append(b, `x"}`...)
	start := time.Now()
	n := 0
	eachMember(b, func(string, []byte) { n++ })
	if took := time.Since(start); n != 1 || took > 5*time.Second {
		t.Errorf("%d members in %v", n, took)
	}
}

// What is written into memory of the caller is what is returned else, and stands behind what was there.
func TestEncoder_WritesTheSameIntoMemoryOfItsCaller(t *testing.T) {
	t.Parallel()
	e, err := newEncoder(EncodingJSON, EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	room := func(n int) []byte {
		asked = n
		return append(make([]byte, 0, n+2), "->"...)
	}
	check := func(got []byte, err error, ev any) {
		want := encodeAny(t, e, ev)
		if err != nil || string(got) != "->"+string(want) || asked != len(want) {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
	tool, turn := sampleToolResult(), sampleTurnEnd()
	got, err := e.EncodeToolTo(tool, room)
	check(got, err, tool)
	got, err = e.EncodeTurnTo(turn, room)
	check(got, err, turn)
}
