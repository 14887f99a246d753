package schemas

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// schemaMap is a registry of schemas by id and GUID. Tests share it.
type schemaMap struct {
	ids   map[int]string
	guids map[string]string
	err   error
	asked atomic.Int64
}

func (m *schemaMap) SchemaByID(_ context.Context, id int) (string, error) {
	m.asked.Add(1)
	return m.answer(m.ids[id])
}

func (m *schemaMap) SchemaByGUID(_ context.Context, guid string) (string, error) {
	m.asked.Add(1)
	return m.answer(m.guids[guid])
}

func (m *schemaMap) answer(text string) (string, error) {
	if m.err != nil {
		return "", m.err
	}
	if text == "" {
		return "", Errorf(CodeSchemaUnknown, "no such schema")
	}
	return text, nil
}

const (
	sampleGUID    = "00112233-4455-6677-8899-aabbccddeeff"
	sampleGUIDHex = "00112233445566778899aabbccddeeff"
)

func ourRegistry() *schemaMap {
	m := &schemaMap{ids: make(map[int]string), guids: make(map[string]string)}
	for i, r := range Records() {
		m.ids[i+1] = r.Schema()
		m.guids[sampleGUID[:35]+string("0123"[i])] = r.Schema()
	}
	return m
}

// wire is one way to write a record.
type wire struct {
	name string
	enc  Encoding
	opts func(r Record) EncoderOptions
}

func wires() []wire {
	index := func(r Record) int {
		for i, o := range Records() {
			if o == r {
				return i
			}
		}
		return -1
	}
	return []wire{
		{"json", EncodingJSON, func(r Record) EncoderOptions { return EncoderOptions{Record: r} }},
		{"avro-single", EncodingAvroSingle, func(r Record) EncoderOptions { return EncoderOptions{Record: r} }},
		{"avro", EncodingAvro, func(r Record) EncoderOptions { return EncoderOptions{Record: r, SchemaID: index(r) + 1} }},
		{"avro, id in header", EncodingAvro, func(r Record) EncoderOptions {
			return EncoderOptions{Record: r, SchemaID: index(r) + 1, IDInHeader: true}
		}},
		{"avro, guid in header", EncodingAvro, func(r Record) EncoderOptions {
			return EncoderOptions{Record: r, GUID: sampleGUID[:35] + string("0123"[index(r)]), IDInHeader: true}
		}},
	}
}

func TestOutput_ComesBackInEveryEncoding(t *testing.T) {
	t.Parallel()
	d := NewDecoder(DecoderOptions{Registry: ourRegistry()})
	for _, w := range wires() {
		for name, ev := range outputs() {
			t.Run(w.name+", "+name, func(t *testing.T) {
				t.Parallel()
				e, err := NewEncoder(w.enc, w.opts(recordOf(ev)))
				if err != nil {
					t.Fatal(err)
				}
				rec, err := d.DecodeOutput(t.Context(), encodeAny(t, e, ev), e.Headers())
				if err != nil {
					t.Fatal(err)
				}
				wantEqual(t, rec.event(), ev)
			})
		}
	}
}

func TestTurn_ComesBackInEveryEncodingWithOneHash(t *testing.T) {
	t.Parallel()
	d := NewDecoder(DecoderOptions{Registry: ourRegistry()})
	for name, ev := range map[string]*TurnEvent{
		"full":   sampleTurn(),
		"least":  {Type: InputTurn, TurnID: "t", SessionID: "t", Messages: []Message{{Role: "user", Text: "hi"}}},
		"cancel": {Type: InputCancel, TurnID: "t", SessionID: "s", Reason: "no longer needed"},
		"none":   {Type: InputTurn, TurnID: "t", SessionID: "t", Tools: []string{}, Scope: &Scope{}, Messages: []Message{{Role: "user", Text: "hi"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hash []byte
			for _, w := range wires() {
				b, headers, err := EncodeTurnEvent(ev, w.enc, w.opts(RecordTurnEvent))
				if err != nil {
					t.Fatal(err)
				}
				got, err := d.Decode(t.Context(), b, headers)
				if err != nil {
					t.Fatalf("%s: %v", w.name, err)
				}
				wantEqual(t, got.Event, ev)
				if got.Encoding != w.enc {
					t.Errorf("recognised as %s, want %s", got.Encoding, w.enc)
				}
				if hash == nil {
					hash = got.Hash
				}
				if !bytes.Equal(got.Hash, hash) || len(hash) != 33 {
					t.Errorf("%s: hash %x, want %x", w.name, got.Hash, hash)
				}
			}
		})
	}
}

func TestEncoder_FramesAsOthersRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		enc    Encoding
		opts   EncoderOptions
		prefix string
		header string
	}{
		{"registry id before the value", EncodingAvro, EncoderOptions{Record: RecordStatusEvent, SchemaID: 258}, "0000000102", ""},
		{"registry id in the header", EncodingAvro, EncoderOptions{Record: RecordStatusEvent, SchemaID: 258, IDInHeader: true}, "", "0000000102"},
		{"GUID in the header", EncodingAvro, EncoderOptions{Record: RecordStatusEvent, GUID: sampleGUID, IDInHeader: true}, "", "01" + sampleGUIDHex},
		{"single object", EncodingAvroSingle, EncoderOptions{}, hex.EncodeToString(singleHeader(RecordStatusEvent.Fingerprint())), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e, err := NewEncoder(tc.enc, tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			b := encodeAny(t, e, sampleStatus())
			bare, err := newGoavroCodec(RecordStatusEvent.parse())
			if err != nil {
				t.Fatal(err)
			}
			want, err := bare.append(nil, nativeStatusEvent(sampleStatus()))
			if err != nil {
				t.Fatal(err)
			}
			if got := hex.EncodeToString(b); got != tc.prefix+hex.EncodeToString(want) {
				t.Errorf("got %s", got)
			}
			if got := hex.EncodeToString(lastHeader(e.Headers(), HeaderSchemaID)); got != tc.header {
				t.Errorf("header %s, want %s", got, tc.header)
			}
			if got := string(lastHeader(e.Headers(), HeaderContentType)); got != ContentTypeAvro {
				t.Errorf("content type %q", got)
			}
		})
	}
}

func TestNewEncoder_RefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		enc  Encoding
		opts EncoderOptions
	}{
		{"unknown encoding", "protobuf", EncoderOptions{}},
		{"no record", EncodingAvro, EncoderOptions{SchemaID: 1}},
		{"unknown record", EncodingAvro, EncoderOptions{Record: "Turn", SchemaID: 1}},
		{"no id", EncodingAvro, EncoderOptions{Record: RecordToolEvent}},
		{"GUID without header", EncodingAvro, EncoderOptions{Record: RecordToolEvent, GUID: sampleGUID}},
		{"bad GUID", EncodingAvro, EncoderOptions{Record: RecordToolEvent, GUID: "0011", IDInHeader: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewEncoder(tc.enc, tc.opts); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestEncoder_RefusesTheRecordOfAnotherSchemaID(t *testing.T) {
	t.Parallel()
	e, err := NewEncoder(EncodingAvro, EncoderOptions{Record: RecordToolEvent, SchemaID: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.EncodeTurn(sampleTurnEnd())
	if got, ok := errors.AsType[*Error](err); !ok || got.Code != CodeInternal {
		t.Errorf("got %v", err)
	}
}

func TestAvro_WritesInvalidUTF8AsJSONDoes(t *testing.T) {
	t.Parallel()
	ev := sampleToolResult()
	ev.Message, ev.Metadata = "a\xffb", map[string]string{"k\xfe": "\xfd"}
	e, err := NewEncoder(EncodingAvroSingle, EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := NewDecoder(DecoderOptions{}).DecodeOutput(t.Context(), encodeAny(t, e, ev), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, rec.Tool.Message, "a\ufffdb")
	wantEqual(t, rec.Tool.Metadata, map[string]string{"k\ufffd": "\ufffd"})
}

func TestDecodeOutput_KeepsTheEnvelopeOfUnknownTypes(t *testing.T) {
	t.Parallel()
	rec, err := NewDecoder(DecoderOptions{}).DecodeOutput(t.Context(),
		[]byte(`{"type":"turn:paused","event_id":"e","turn_id":"t","at":"2026-03-04T05:06:07.123Z","seq":4,"later":{"x":1}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, rec.Envelope(), &Envelope{Type: "turn:paused", EventID: "e", TurnID: "t", At: sampleTime.In(time.UTC), Seq: new(int64(4))})
}

func TestDecodeOutput_RefusesWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, value string }{
		{"no type", `{"turn_id":"t"}`},
		{"a type of the wrong kind", `{"type":5}`},
		{"a field of the wrong kind", `{"type":"turn:end","turn_id":{"secret":"hunter2"}}`},
		{"no JSON", `{"type":"turn:end"`},
		{"a turn event in single-object form", string(singleHeader(RecordTurnEvent.Fingerprint())) + "x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := NewDecoder(DecoderOptions{}).DecodeOutput(t.Context(), []byte(tc.value), nil)
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
