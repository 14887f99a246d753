package fact

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lathe-run/lathe/schemas"
)

func TestFrames_ReadEveryFactAsItWasWritten(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	facts := everyFact()
	b := encode(t, c, facts)
	frames, err := c.Frames(b)
	if err != nil {
		t.Fatalf("Frames: %v", err)
	}
	seq, raw := int64(0), []byte(nil)
	var got []Fact
	for _, f := range frames {
		if f.Seq != seq {
			t.Errorf("%T has seq %d, want %d", f.Fact, f.Seq, seq)
		}
		seq += f.Fact.Events()
		got, raw = append(got, f.Fact), append(raw, f.Raw...)
	}
	if diff := cmp.Diff(facts, got); diff != "" {
		t.Errorf("facts changed (-written +read):\n%s", diff)
	}
	if !bytes.Equal(raw, b) {
		t.Errorf("the raw frames are not what was stored")
	}
}

// Floating-point seconds lost a millisecond now and then, and with it the deadline of a turn changed when it was resumed.
func TestFrames_KeepEveryMillisecondAndNanosecond(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	start := time.Date(2026, 11, 30, 8, 34, 12, 0, time.UTC)
	for ms := range 1000 {
		for _, want := range []time.Time{start.Add(time.Duration(ms) * time.Millisecond), start.Add(time.Duration(ms)*time.Millisecond + 999_999)} {
			frames, err := c.Frames(encode(t, c, []Fact{&Cancelled{At: want}}))
			if err != nil {
				t.Fatalf("Frames: %v", err)
			}
			if got := frames[0].Fact.(*Cancelled).At; !got.Equal(want) {
				t.Fatalf("%s is read as %s", want.Format(time.RFC3339Nano), got.Format(time.RFC3339Nano))
			}
		}
	}
	elsewhere := start.In(time.FixedZone("elsewhere", 3600))
	frames, err := c.Frames(encode(t, c, []Fact{&Cancelled{At: elsewhere}}))
	if err != nil || !frames[0].Fact.(*Cancelled).At.Equal(start) {
		t.Errorf("a time of another zone is read as %v, %v, want %v", frames[0].Fact.(*Cancelled).At, err, start)
	}
}

func TestFrames_KeepTheDifferenceBetweenNoPermissionsAndNoNarrowing(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	for _, want := range [][]string{nil, {}, {"tool:a"}} {
		frames, err := c.Frames(encode(t, c, []Fact{&Accepted{Scope: &schemas.Scope{Permissions: want}}}))
		if err != nil {
			t.Fatalf("Frames: %v", err)
		}
		got := frames[0].Fact.(*Accepted).Scope.Permissions
		if (got == nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("permissions %#v are read as %#v", want, got)
		}
	}
}

// A model or a tool may write anything; a journal that could not be read again would halt its partition for ever.
func TestFrames_ReadStringsThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	odd := "a\xffb\x00"
	want := []Fact{&Responded{Response: Response{Text: odd, Calls: []Asked{{Name: odd, CallID: odd}}}}, &Accepted{Metadata: map[string]string{odd: odd}}}
	frames, err := c.Frames(encode(t, c, want))
	if err != nil {
		t.Fatalf("Frames: %v", err)
	}
	if diff := cmp.Diff(want, []Fact{frames[0].Fact, frames[1].Fact}); diff != "" {
		t.Errorf("facts changed (-written +read):\n%s", diff)
	}
}

func TestFrames_IgnoreFieldsOfANewerReleaseAndDoWithoutThoseOfAnOlderOne(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	tests := []struct {
		name string
		body map[int]any
		want Fact
	}{
		{name: "newer", body: map[int]any{1: "r", 2: at(7), 40: "new", 41: map[string]any{"deep": []int{1}}}, want: &Cancelled{Reason: "r", At: at(7)}},
		{name: "older", body: map[int]any{}, want: &Cancelled{}},
		{name: "newer inside", body: map[int]any{1: map[int]any{1: 4, 99: true}, 2: []any{map[int]any{1: map[int]any{1: 4, 2: 1, 3: "new"}, 77: 1}}}, want: &Responded{
			Response: Response{Step: 4}, Wave: []Call{{Ref: Ref{Step: 4, Position: 1}}},
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			k, err := kindOf(tc.want)
			if err != nil {
				t.Fatal(err)
			}
			frames, err := c.Frames(rawFrame(t, c, k, tc.body))
			if err != nil {
				t.Fatalf("Frames: %v", err)
			}
			if diff := cmp.Diff(tc.want, frames[0].Fact); diff != "" {
				t.Errorf("read another fact (-want +got):\n%s", diff)
			}
		})
	}
}

func rawFrame(tb testing.TB, c *Codec, k kind, body any) []byte {
	tb.Helper()
	b, err := c.enc.Marshal(body)
	if err != nil {
		tb.Fatal(err)
	}
	frame, err := c.enc.Marshal(&wireFrame{Kind: k, Seq: 1, Body: b})
	if err != nil {
		tb.Fatal(err)
	}
	return frame
}

func TestFrames_RefuseAKindThatOnlyANewerReleaseKnows(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	for _, k := range []kind{0, kindRestarted + 1, 255} {
		if _, err := c.Frames(rawFrame(t, c, k, map[int]any{})); err == nil || !strings.Contains(err.Error(), fmt.Sprint(k)) {
			t.Errorf("kind %d gives %v, want an error that names it", k, err)
		}
	}
}

// Renumbering a field or a kind would make every journal in use unreadable without a sign, so the numbers stand here again.
func TestFrames_HaveTheStoredNumbers(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	tests := []struct {
		fact Fact
		kind kind
		keys []int
	}{
		{&Accepted{}, 1, []int{1, 2, 3, 4, 5, 6, 7, 17}},
		{everyFact()[0], 1, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}},
		{everyFact()[1], 2, []int{1, 2, 3, 4}},
		{everyFact()[2], 3, []int{1, 2, 3, 4}},
		{everyFact()[3], 4, []int{1}},
		{everyFact()[4], 5, []int{1, 2, 3}},
		{everyFact()[5], 6, []int{1, 2}},
		{everyFact()[6], 8, []int{1, 2, 3}},
		{everyFact()[7], 7, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
	}
	for _, tc := range tests {
		var w wireFrame
		if err := cbor.Unmarshal(encode(t, c, []Fact{tc.fact}), &w); err != nil {
			t.Fatalf("%T: %v", tc.fact, err)
		}
		var body map[int]cbor.RawMessage
		if err := cbor.Unmarshal(w.Body, &body); err != nil {
			t.Fatalf("%T: %v", tc.fact, err)
		}
		var keys []int
		for k := range body {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if w.Kind != tc.kind || !slices.Equal(keys, tc.keys) {
			t.Errorf("%T is kind %d with fields %v, want %d and %v", tc.fact, w.Kind, keys, tc.kind, tc.keys)
		}
	}
}

func TestFrames_RefuseARecordThatIsCutOff(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	b := encode(t, c, everyFact()[:3])
	whole := map[int]bool{0: true}
	for n := 1; n <= 3; n++ {
		whole[len(encode(t, c, everyFact()[:n]))] = true
	}
	for n := range b {
		if frames, err := c.Frames(b[:n]); (err == nil) != whole[n] {
			t.Errorf("the first %d of %d bytes give %d facts, error %v", n, len(b), len(frames), err)
		}
	}
}

func TestFrame_WritesWhatTheEncoderWouldWrite(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	for _, seq := range []int64{0, 23, 24, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, 1<<63 - 1} {
		got, err := c.Frame(Frame{Seq: seq, Fact: &Cancelled{Reason: "r"}}, onto([]byte("before")))
		if err != nil {
			t.Fatalf("Frame: %v", err)
		}
		body, err := c.enc.Marshal(&Cancelled{Reason: "r"})
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.enc.Marshal(&wireFrame{Kind: kindCancelled, Seq: seq, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("seq %d: %x, want %x", seq, got, want)
		}
	}
	if _, err := c.Frame(Frame{Seq: -1, Fact: &Cancelled{}}, onto(nil)); err == nil {
		t.Errorf("a negative seq is stored")
	}
}

func TestCodec_KeepsAnAgentAndGivesItOneHash(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	want := Agent{
		Name: "a", Model: ModelSpec{Name: "n", Provider: "p", Model: "m", Params: []byte(`{"t":0}`)}, System: "s", History: true,
		Tools:  []Tool{{Name: "x", Version: "1", Effect: schemas.EffectHost, Idempotency: schemas.AtMostOnce, Fingerprint: "f"}},
		Limits: Limits{Steps: 1, Calls: 2, Parallel: 3, Failures: 4, Duration: time.Minute, ContextBytes: 5}, ContinueOnUnknown: true, FailOnToolError: true,
	}
	first, err := c.Marshal(&want)
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	var got Agent
	if err := c.Unmarshal(first, &got); err != nil {
		t.Fatalf("Unmarshal: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the agent changed (-written +read):\n%s", diff)
	}
	if again, err := c.Marshal(&got); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the same agent has other bytes, %v", err)
	}
	if err := c.Unmarshal([]byte("no"), &got); err == nil {
		t.Errorf("Unmarshal of garbage has no error")
	}
}

func FuzzFrames(f *testing.F) {
	c := newCodec(f)
	f.Add(encode(f, c, everyFact()))
	for _, one := range everyFact() {
		f.Add(encode(f, c, []Fact{one}))
	}
	f.Add(rawFrame(f, c, kindAccepted, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := c.Frames(b)
		if err != nil {
			return
		}
		var again []byte
		for _, fr := range frames {
			if fr.Seq < 0 {
				return
			}
			if again, err = c.Frame(Frame{Seq: fr.Seq, Fact: fr.Fact}, onto(again)); err != nil {
				t.Fatalf("what was read can't be written: %v", err)
			}
		}
		same, err := c.Frames(again)
		if err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		if diff := cmp.Diff(frames, same, cmpopts.IgnoreFields(Frame{}, "Raw"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("read, written and read again (-first +second):\n%s", diff)
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	c := newCodec(b)
	fin := everyFact()[4]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Frame(Frame{Seq: 4, Fact: fin}, onto(nil)); err != nil {
			b.Fatal(err)
		}
	}
}
