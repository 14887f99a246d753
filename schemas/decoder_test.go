package schemas

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gowebpki/jcs"
)

func decodeJSON(t *testing.T, value string) (*Decoded, *Error) {
	t.Helper()
	dec, err := NewDecoder(DecoderOptions{}).Decode(t.Context(), []byte(value), nil)
	if err == nil {
		return dec, nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("an error that is no *Error: %v", err)
	}
	return dec, e
}

const goodMessages = `"messages":[{"role":"user","content":"hi"}]`

func TestDecode_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	with := func(members string) string { return `{"turn_id":"t-1",` + goodMessages + `,` + members + `}` }
	messages := func(m string) string { return `{"turn_id":"t-1","messages":` + m + `}` }
	part := func(p string) string { return messages(`[{"role":"user","content":[` + p + `]}]`) }
	for _, tc := range []struct{ name, value, path string }{
		{"no turn_id", `{` + goodMessages + `}`, "turn_id"},
		{"null turn_id", `{"turn_id":null,` + goodMessages + `}`, "turn_id"},
		{"empty turn_id", `{"turn_id":"",` + goodMessages + `}`, "turn_id"},
		{"turn_id of a number", `{"turn_id":7,` + goodMessages + `}`, "turn_id"},
		{"turn_id with a slash", `{"turn_id":"a/b",` + goodMessages + `}`, "turn_id"},
		{"turn_id with a letter beyond ASCII", `{"turn_id":"é",` + goodMessages + `}`, "turn_id"},
		{"turn_id too long", `{"turn_id":"` + strings.Repeat("a", 129) + `",` + goodMessages + `}`, "turn_id"},
		{"turn_id in another case", `{"Turn_ID":"t-1",` + goodMessages + `}`, "turn_id"},
		{"session_id with a space", with(`"session_id":"a b"`), "session_id"},
		{"session_id too long", with(`"session_id":"` + strings.Repeat("a", 257) + `"`), "session_id"},
		{"type", with(`"type":"batch"`), "type"},
		{"a field twice", with(`"agent":"a","agent":"b"`), "agent"},
		{"a field twice, once null", with(`"agent":null,"agent":"b"`), "agent"},
		{"a nested field twice", messages(`[{"role":"user","content":"a","content":"b"}]`), "messages[0].content"},
		{"agent of a number", with(`"agent":1`), "agent"},
		{"no messages", `{"turn_id":"t-1"}`, "messages"},
		{"empty messages", messages(`[]`), "messages"},
		{"messages of an object", messages(`{}`), "messages"},
		{"a message of null", messages(`[null]`), "messages[0]"},
		{"a message of a string", messages(`["hi"]`), "messages[0]"},
		{"no role", messages(`[{"content":"hi"}]`), "messages[0].role"},
		{"role tool", messages(`[{"role":"user","content":"a"},{"role":"tool","content":"b"}]`), "messages[1].role"},
		{"no content", messages(`[{"role":"user"}]`), "messages[0].content"},
		{"empty content", messages(`[{"role":"user","content":""}]`), "messages[0].content"},
		{"empty parts", messages(`[{"role":"user","content":[]}]`), "messages[0].content"},
		{"content of a number", messages(`[{"role":"user","content":5}]`), "messages[0].content"},
		{"part of a string", part(`"hi"`), "messages[0].content[0]"},
		{"part of null", part(`null`), "messages[0].content[0]"},
		{"part without type", part(`{"text":"a"}`), "messages[0].content[0].type"},
		{"part of an unknown type", part(`{"type":"text","text":"a"},{"type":"audio"}`), "messages[0].content[1].type"},
		{"text part without text", part(`{"type":"text"}`), "messages[0].content[0].text"},
		{"json part without value", part(`{"type":"json","value":null}`), "messages[0].content[0].value"},
		{"json part with a key twice", part(`{"type":"json","value":{"a":1,"a":2}}`), "messages[0].content[0].value"},
		{"json part with a huge number", part(`{"type":"json","value":1e999}`), "messages[0].content[0].value"},
		{"image without url and data", part(`{"type":"image","media_type":"image/png"}`), "messages[0].content[0]"},
		{"image with url and data", part(`{"type":"image","media_type":"image/png","url":"u","data":"aGk="}`), "messages[0].content[0]"},
		{"image data without media type", part(`{"type":"image","data":"aGk="}`), "messages[0].content[0].media_type"},
		{"image data that is no base64", part(`{"type":"image","media_type":"image/png","data":"@"}`), "messages[0].content[0].data"},
		{"tools of a string", with(`"tools":"a"`), "tools"},
		{"tools with null", with(`"tools":["a",null]`), "tools[1]"},
		{"scope of a string", with(`"scope":"a"`), "scope"},
		{"principal_id of a number", with(`"scope":{"principal_id":1}`), "scope.principal_id"},
		{"metadata with a number", with(`"metadata":{"secret":1}`), "metadata"},
		{"metadata with a key twice", with(`"metadata":{"a":"1","a":"1"}`), "metadata"},
		{"metadata too large", with(`"metadata":{"a":"` + strings.Repeat("x", 4096) + `"}`), "metadata"},
		{"deadline without a zone", with(`"deadline":"2026-01-01T00:00:00"`), "deadline"},
		{"deadline of a number", with(`"deadline":1700000000`), "deadline"},
		{"output_schema of a string", with(`"output_schema":"x"`), "output_schema"},
		{"output_schema of true", with(`"output_schema":true`), "output_schema"},
		{"output_schema that is not canonical", with(`"output_schema":{"a":"\ud800"}`), "output_schema"},
		{"calls", `{"turn_id":"t-1","calls":[]}`, "calls"},
		{"calls and messages", with(`"calls":[{"id":"a","tool":"b","input":{}}]`), "calls"},
		{"groups", with(`"groups":{}`), "groups"},
		{"budget", with(`"budget":{"tokens":1}`), "budget"},
		{"permissions", with(`"scope":{"permissions":[]}`), "scope.permissions"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dec, err := decodeJSON(t, tc.value)
			if err == nil {
				t.Fatalf("no error; got %+v", dec.Event)
			}
			if err.Code != CodeInvalidTurn || err.Path != tc.path || err.Class != ClassTerminal {
				t.Errorf("got %s at %q, want invalid_turn at %q: %v", err.Code, err.Path, tc.path, err)
			}
			ids := tc.path == "turn_id" || tc.path == "session_id"
			if ids != (dec == nil) {
				t.Errorf("with a fault at %s, Decoded is %+v", tc.path, dec)
			}
			if dec != nil && (dec.Event.TurnID != "t-1" || dec.Event.SessionID != "t-1" || dec.Hash != nil) {
				t.Errorf("got %+v", dec.Event)
			}
		})
	}
}

func TestDecode_TakesWhatTheContractAllows(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, value string }{
		{"every character of an id", `{"turn_id":"azAZ09._:~@+=-",` + goodMessages + `}`},
		{"the longest ids", `{"turn_id":"` + strings.Repeat("a", 128) + `","session_id":"` + strings.Repeat("b", 256) + `",` + goodMessages + `}`},
		{"white space around", " \r\n\t{\"turn_id\" : \"t\" , " + goodMessages + "}\n "},
		{"unknown fields", `{"turn_id":"t",` + goodMessages + `,"later":{"a":[1]},"later":2,"Agent":5}`},
		{"nulls", `{"type":null,"turn_id":"t","session_id":null,"agent":null,` + goodMessages + `,"calls":null,"tools":null,"groups":null,"scope":null,"metadata":null,"deadline":null,"budget":null,"output_schema":null,"reason":null}`},
		{"metadata at its limit", `{"turn_id":"t",` + goodMessages + `,"metadata":{"k":"` + strings.Repeat("x", 4095) + `"}}`},
		{"a cancel without messages", `{"type":"cancel","turn_id":"t","session_id":"s"}`},
		{"an image by url", `{"turn_id":"t","messages":[{"role":"user","content":[{"type":"image","url":"https://example.org/a.png"}]}]}`},
		{"an escaped key", `{"turn\u005fid":"t",` + goodMessages + `}`},
		{"a deadline in another zone", `{"turn_id":"t",` + goodMessages + `,"deadline":"2026-03-04T06:06:07.1239+01:00"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, err := decodeJSON(t, tc.value); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDecode_FillsInDefaults(t *testing.T) {
	t.Parallel()
	dec, err := decodeJSON(t, `{"turn_id":"t",`+goodMessages+`,"tools":[],"deadline":"2026-03-04T06:06:07.1239+01:00"}`)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, dec.Event, &TurnEvent{
		Type: InputTurn, TurnID: "t", SessionID: "t", Messages: []Message{{Role: "user", Text: "hi"}}, Tools: []string{},
		Deadline: new(time.Date(2026, 3, 4, 5, 6, 7, 123e6, time.UTC)),
	})
	if !dec.Lone {
		t.Error("a turn without session_id has a session that others may be of")
	}
}

// Who names a session, be it by the turn's own id, means to come back to it.
func TestDecode_TellsWhoNamesASession(t *testing.T) {
	t.Parallel()
	for session, lone := range map[string]bool{"": true, `"session_id":null,`: true, `"session_id":"t",`: false, `"session_id":"s",`: false} {
		dec, err := decodeJSON(t, `{"turn_id":"t",`+session+goodMessages+`}`)
		if err != nil || dec.Lone != lone {
			t.Errorf("%s: lone is %v, want %v (%v)", session, dec.Lone, lone, err)
		}
	}
}

func TestDecode_HashesWhatWasSent(t *testing.T) {
	t.Parallel()
	base := `{"turn_id":"t",` + goodMessages + `%s}`
	for _, tc := range []struct {
		name, members string
		same          bool
	}{
		{"nulls", `,"agent":null,"scope":null`, true},
		{"the default type", `,"type":"turn"`, true},
		{"metadata", `,"metadata":{"a":"b"}`, true},
		{"unknown fields", `,"later":1`, true},
		{"an agent", `,"agent":"a"`, false},
		{"the session that is the default", `,"session_id":"t"`, false},
		{"no tools", `,"tools":[]`, false},
		{"an empty scope", `,"scope":{}`, false},
		{"another deadline", `,"deadline":"2026-01-01T00:00:00Z"`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want, err := decodeJSON(t, fmt.Sprintf(base, ""))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeJSON(t, fmt.Sprintf(base, tc.members))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(got.Hash, want.Hash) != tc.same {
				t.Errorf("same hash: %t, want %t", !tc.same, tc.same)
			}
		})
	}
	one, _ := decodeJSON(t, `{"turn_id":"t","messages":[{"role":"user","content":[{"type":"json","value":{"a":1.0,"b":[ ]}}]}]}`)
	two, _ := decodeJSON(t, `{"messages":[{"content":[{"value":{"b":[],"a":1},"type":"json"}],"role":"user"}],"turn_id":"t"}`)
	if !bytes.Equal(one.Hash, two.Hash) {
		t.Error("order, white space or the form of a number changed the hash")
	}
}

func TestDecode_RefusesWhatIsNoTurn(t *testing.T) {
	t.Parallel()
	single := singleHeader(RecordTurnEvent.Fingerprint())
	id := []Header{{Key: HeaderSchemaID, Value: []byte{0, 0, 0, 0, 1}}}
	for _, tc := range []struct {
		name    string
		value   []byte
		headers []Header
		code    Code
	}{
		{"tombstone", nil, nil, CodeTombstone},
		{"tombstone with a header", nil, id, CodeTombstone},
		{"empty value", []byte{}, nil, CodeUndecodable},
		{"empty value with a header", []byte{}, id, CodeUndecodable},
		{"white space", []byte(" \n"), nil, CodeUndecodable},
		{"too large", bytes.Repeat([]byte("a"), 512<<10+1), nil, CodeTooLarge},
		{"an array", []byte(`[{}]`), nil, CodeUndecodable},
		{"a string", []byte(`"{}"`), nil, CodeUndecodable},
		{"two objects", []byte(`{}{}`), nil, CodeUndecodable},
		{"cut off", []byte(`{"turn_id":"t"`), nil, CodeUndecodable},
		{"a comment", []byte(`{"turn_id":"t"}//`), nil, CodeUndecodable},
		{"invalid UTF-8", []byte("{\"turn_id\":\"\xff\"}"), nil, CodeUndecodable},
		{"a byte order mark", []byte("\xef\xbb\xbf{}"), nil, CodeUndecodable},
		{"too deep", []byte(`{"later":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`), nil, CodeUndecodable},
		{"a million deep", []byte(`{"a":` + strings.Repeat("[", 500_000)), nil, CodeUndecodable},
		{"Glue framing", append([]byte{3, 0}, make([]byte, 20)...), nil, CodeUndecodable},
		{"a zero byte", []byte{0}, nil, CodeUndecodable},
		{"cut-off schema id", []byte{0, 0, 0, 1}, nil, CodeUndecodable},
		{"cut-off fingerprint", single[:9], nil, CodeUndecodable},
		{"no bytes after the id", []byte{0, 0, 0, 0, 1}, nil, CodeUndecodable},
		{"no bytes after the fingerprint", single, nil, CodeUndecodable},
		{"unknown fingerprint", append([]byte{0xC3, 1}, "12345678abc"...), nil, CodeSchemaUnknown},
		{"the fingerprint of another record", append(singleHeader(RecordToolEvent.Fingerprint()), 0), nil, CodeSchemaUnknown},
		{"unknown id", []byte{0, 0, 0, 9, 9, 0}, nil, CodeSchemaUnknown},
		{"the schema of another record", []byte{0, 0, 0, 0, 2, 0}, nil, CodeUndecodable},
		{"malformed header", []byte("{}"), []Header{{Key: HeaderSchemaID, Value: []byte{1, 2}}}, CodeUndecodable},
		{"unknown GUID", []byte("x"), []Header{{Key: HeaderSchemaID, Value: append([]byte{1}, make([]byte, 16)...)}}, CodeSchemaUnknown},
		{"JSON under a schema id", []byte("{}"), id, CodeUndecodable},
		{"a CloudEvent of nothing", []byte("{}"), cloudHeaders(), CodeUndecodable},
		{"a CloudEvent that is no JSON", []byte{0, 0, 0, 0, 1, 0}, cloudHeaders(), CodeUndecodable},
		{"a CloudEvent of another version", []byte(`{"specversion":"0.3","data":{}}`), cloudHeaders(), CodeUndecodable},
		{"a CloudEvent with a string", []byte(`{"specversion":"1.0","data":"{}"}`), cloudHeaders(), CodeUndecodable},
		{"a CloudEvent with two datas", []byte(`{"specversion":"1.0","data":{},"data":{}}`), cloudHeaders(), CodeUndecodable},
		{"a CloudEvent with data and data_base64", []byte(`{"specversion":"1.0","data":{},"data_base64":"e30="}`), cloudHeaders(), CodeUndecodable},
		{"a CloudEvent with bad base64", []byte(`{"specversion":"1.0","data_base64":"e30"}`), cloudHeaders(), CodeUndecodable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dec, err := NewDecoder(DecoderOptions{Registry: ourRegistry()}).Decode(t.Context(), tc.value, tc.headers)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Code != tc.code || e.Class != ClassTerminal || dec != nil {
				t.Errorf("got %v (%+v), want %s", err, dec, tc.code)
			}
		})
	}
}

func cloudHeaders() []Header {
	return []Header{{Key: "Content-Type", Value: []byte("application/CloudEvents+json; charset=utf-8")}}
}

func TestDecode_OpensStructuredCloudEvents(t *testing.T) {
	t.Parallel()
	turn := `{"turn_id":"t",` + goodMessages + `}`
	plain, fault := decodeJSON(t, turn)
	if fault != nil {
		t.Fatal(fault)
	}
	avroTurn, _, err := EncodeTurnEvent(plain.Event, EncodingAvroSingle, EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, value string
		enc         Encoding
	}{
		{"data", `{"specversion":"1.0","id":"1","source":"/x","type":"t","data":` + turn + `}`, EncodingJSON},
		{"data_base64 of JSON", `{"specversion":"1.0","data_base64":"` + base64.StdEncoding.EncodeToString([]byte(turn)) + `"}`, EncodingJSON},
		{"data_base64 of Avro", `{"specversion":"1.0","data_base64":"` + base64.StdEncoding.EncodeToString(avroTurn) + `"}`, EncodingAvroSingle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewDecoder(DecoderOptions{}).Decode(t.Context(), []byte(tc.value), cloudHeaders())
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, got.Event, plain.Event)
			wantEqual(t, got.Encoding, tc.enc)
		})
	}
}

func TestDecode_OddHeadersDoNoHarm(t *testing.T) {
	t.Parallel()
	value := []byte(`{"turn_id":"t",` + goodMessages + `}`)
	for name, headers := range map[string][]Header{
		"empty schema id": {{Key: HeaderSchemaID}, {Key: HeaderSchemaID, Value: []byte{}}},
		"no key":          {{}, {Value: []byte("x")}},
		"content types":   {{Key: HeaderContentType, Value: []byte("text/plain")}, {Key: HeaderContentType, Value: []byte("application/json")}},
		"binary mode":     {{Key: "ce_specversion", Value: []byte("1.0")}, {Key: HeaderContentType, Value: []byte(";;;")}},
		"superseded":      {{Key: HeaderContentType, Value: []byte(ContentTypeCloudEvent)}, {Key: HeaderContentType, Value: []byte("application/json")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewDecoder(DecoderOptions{}).Decode(t.Context(), value, headers); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDecode_NoSecretStandsInAnError(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	values := [][]byte{
		[]byte(`{"turn_id":"` + secret + `/","messages":5}`),
		[]byte(`{"turn_id":"t","messages":[{"role":"` + secret + `"}]}`),
		[]byte(`{"turn_id":"t","` + secret + `":1,"metadata":{"` + secret + `":1}}`),
		[]byte(`{"turn_id":"t",` + goodMessages + `,"deadline":"` + secret + `"}`),
		[]byte(`{"turn_id":"t",` + goodMessages + `,"output_schema":{"` + secret + `":1e999}}`),
		[]byte(`{` + secret),
		append(singleHeader(RecordTurnEvent.Fingerprint()), "\x0e"+secret+"\x0e"+secret+"\x99"...),
		append([]byte{0, 0, 0, 0, 1}, "\x0e"+secret+"\x0e"+secret...),
	}
	d := NewDecoder(DecoderOptions{Registry: ourRegistry()})
	for _, v := range values {
		if _, err := d.Decode(t.Context(), v, nil); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", v, err)
		}
	}
}

func TestDecode_ARegistryThatIsDownIsRetryable(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]error{
		"classified":   &Error{Class: ClassRetryable, Code: CodeSchemaUnknown, Message: "down"},
		"unclassified": context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ourRegistry()
			r.err = down
			d := NewDecoder(DecoderOptions{Registry: r})
			b, _, err := EncodeTurnEvent(sampleTurn(), EncodingAvro, EncoderOptions{SchemaID: 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Decode(t.Context(), b, nil); !IsRetryable(err) {
				t.Errorf("got %v", err)
			}
			r.err = nil
			if _, err := d.Decode(t.Context(), b, nil); err != nil {
				t.Errorf("after it came back: %v", err)
			}
			r.err = down
			if _, err := d.Decode(t.Context(), b, nil); err != nil {
				t.Errorf("a schema that is known needs no registry: %v", err)
			}
		})
	}
}

func TestDecode_WithoutRegistrySaysSo(t *testing.T) {
	t.Parallel()
	_, err := NewDecoder(DecoderOptions{}).Decode(t.Context(), []byte{0, 0, 0, 0, 7, 0}, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeSchemaUnknown || !strings.Contains(e.Message, "id 7") {
		t.Errorf("got %v", err)
	}
}

func TestDecode_KeepsABoundedNumberOfSchemas(t *testing.T) {
	t.Parallel()
	r := &schemaMap{ids: make(map[int]string)}
	for i := range 20 {
		r.ids[i] = RecordTurnEvent.Schema()
	}
	d := NewDecoder(DecoderOptions{Registry: r, MaxSchemas: 4})
	e, err := NewTurnEncoder(EncodingAvro, EncoderOptions{SchemaID: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Encode(sampleTurn())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		b[4] = byte(i)
		for range 3 {
			if _, err := d.Decode(t.Context(), b, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := d.turns.mu.order.Len(); got != 4 || len(d.turns.mu.byKey) != 4 || r.asked.Load() != 20 {
		t.Errorf("%d kept, registry asked %d times", got, r.asked.Load())
	}
}

func TestDecode_RandomBytesNeverPanic(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	d := NewDecoder(DecoderOptions{Registry: ourRegistry()})
	prefixes := [][]byte{nil, {'{'}, {0, 0, 0, 0, 1}, singleHeader(RecordTurnEvent.Fingerprint())}
	for range 5000 {
		b := append([]byte{}, prefixes[r.IntN(len(prefixes))]...)
		for range r.IntN(300) {
			b = append(b, byte(r.UintN(256)))
		}
		if _, err := d.Decode(t.Context(), append(b, 0xff), nil); err == nil {
			t.Fatalf("%x was a turn", b)
		}
	}
}

func TestHash_IsOfTheCanonicalForm(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 500 {
		ev := sampleTurn()
		ev.Metadata, ev.Agent, ev.Reason = nil, randomString(r), randomString(r)
		ev.Messages[1].Parts[0].Text, ev.Tools[0] = randomString(r), randomString(r)
		ev.Messages[1].Parts[1].Value = randomJSON(r, 4)
		ev.Calls = []PlannedCall{{ID: "a", Tool: randomString(r), Input: randomJSON(r, 2)}}
		ev.Groups = &Groups{Enable: []string{"a"}, Disable: []string{"b"}}
		ev.Scope.Permissions, ev.Budget = []string{}, &Budget{CostMicros: new(int64(1)), Tokens: new(int64(2))}
		plain, err := marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := jcs.Transform(plain)
		o := &jsonObject{}
		canonicalTurn(o, ev)
		got, err := o.b, o.err
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("got  %s, %v\nwant %s, %v", got, err, want, wantErr)
		}
	}
}
