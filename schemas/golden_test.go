package schemas

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// vector is a turn event in every form, for whoever writes a producer in another language.
type vector struct {
	Name string `json:"name"`
	// JSON is the event as sent.
	JSON json.RawMessage `json:"json"`
	// Binary is the Avro binary in hex, with no framing; SingleObject and Confluent (under schema id 1) are framed.
	Binary       string `json:"avro_binary"`
	SingleObject string `json:"avro_single_object"`
	Confluent    string `json:"avro_confluent"`
	// Hash is the payload hash in hex.
	Hash string `json:"payload_hash"`
}

func vectorInputs() []vector {
	return []vector{
		{Name: "least", JSON: json.RawMessage(`{"turn_id":"t-1","messages":[{"role":"user","content":"hi"}]}`)},
		{Name: "metadata is not hashed", JSON: json.RawMessage(`{"turn_id":"t-1","metadata":{"tenant":"a"},"messages":[{"role":"user","content":"hi"}]}`)},
		{Name: "session, agent and no tools", JSON: json.RawMessage(`{"turn_id":"t-1","session_id":"s-1","agent":"support","tools":[],"messages":[{"role":"user","content":"hi"}]}`)},
		{Name: "parts, scope, deadline and schema", JSON: json.RawMessage(`{"turn_id":"t-2","session_id":"s-1","type":"turn",` +
			`"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"é \u2028 \"x\""},` +
			`{"type":"json","value":{"b":[1.0,2.50,1e3],"a":null}},{"type":"image","data":"aGk=","media_type":"image/png"},` +
			`{"type":"image","url":"https://example.org/a.png"}]}],"tools":["refund"],"scope":{"principal_id":"u-7","project_id":"shop"},` +
			`"deadline":"2026-03-04T05:06:07.123Z","output_schema":{"type":"object"}}`)},
		{Name: "cancel", JSON: json.RawMessage(`{"type":"cancel","turn_id":"t-2","session_id":"s-1","reason":"no longer needed"}`)},
	}
}

const vectorFile = "testdata/turn_events.json"

func TestGolden_TurnEventsHaveOneHashInAllEncodings(t *testing.T) {
	t.Parallel()
	d := NewDecoder(DecoderOptions{Registry: ourRegistry()})
	if *update {
		writeVectors(t, d)
	}
	b, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) != len(vectorInputs()) {
		t.Fatalf("%d vectors, want %d", len(vectors), len(vectorInputs()))
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			fromHex := func(s string) []byte {
				b, err := hex.DecodeString(s)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			want, err := d.Decode(t.Context(), v.JSON, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, rec := range map[string]struct {
				value   []byte
				headers []Header
			}{
				"json":      {v.JSON, nil},
				"single":    {fromHex(v.SingleObject), nil},
				"confluent": {fromHex(v.Confluent), nil},
				"header":    {fromHex(v.Binary), []Header{{Key: HeaderSchemaID, Value: []byte{0, 0, 0, 0, 1}}}},
			} {
				got, err := d.Decode(t.Context(), rec.value, rec.headers)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if hex.EncodeToString(got.Hash) != v.Hash {
					t.Errorf("%s: hash %x, want %s", name, got.Hash, v.Hash)
				}
				wantEqual(t, got.Event, want.Event, sameJSON())
			}
		})
	}
}

func writeVectors(t *testing.T, d *Decoder) {
	t.Helper()
	vectors := vectorInputs()
	for i := range vectors {
		v := &vectors[i]
		dec, err := d.Decode(t.Context(), v.JSON, nil)
		if err != nil {
			t.Fatal(err)
		}
		var sent TurnEvent
		if err := json.Unmarshal(v.JSON, &sent); err != nil {
			t.Fatal(err)
		}
		single, _, err := EncodeTurnEvent(&sent, EncodingAvroSingle, EncoderOptions{})
		confluent, _, err2 := EncodeTurnEvent(&sent, EncodingAvro, EncoderOptions{SchemaID: 1})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		v.Hash, v.Binary = hex.EncodeToString(dec.Hash), hex.EncodeToString(single[10:])
		v.SingleObject, v.Confluent = hex.EncodeToString(single), hex.EncodeToString(confluent)
	}
	b, err := json.MarshalIndent(vectors, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vectorFile, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
