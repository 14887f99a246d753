package schemas

import (
	"bytes"
	"errors"
	"testing"
)

// fuzzDecode holds what must be true of any record: no panic, errors that are classified, and what was decoded encodes to
// the same event with the same hash in every encoding.
func fuzzDecode(t *testing.T, d *Decoder, encoders []*TurnEncoder, value []byte, headers []Header) {
	t.Helper()
	dec, err := d.Decode(t.Context(), value, headers)
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok || !e.Code.DeadLetter() {
			t.Fatalf("not classified: %v", err)
		}
		if e.Err != nil {
			t.Fatalf("it panicked: %v", e.Err)
		}
		return
	}
	sent := *dec.Event
	for _, e := range encoders {
		b, err := e.Encode(&sent)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.Decode(t.Context(), b, e.Headers())
		if err != nil {
			t.Fatalf("%s again: %v\n%s", dec.Encoding, err, b)
		}
		wantEqual(t, again.Event, dec.Event, sameJSON())
	}
	// The default session is filled in, which is no longer what was sent: only from the second time on is the hash fixed.
	first, err := d.Decode(t.Context(), mustEncode(t, encoders[0], &sent), encoders[0].Headers())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range encoders[1:] {
		again, err := d.Decode(t.Context(), mustEncode(t, e, &sent), e.Headers())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Hash, first.Hash) {
			t.Fatalf("the hash depends on the encoding: %x, %x", first.Hash, again.Hash)
		}
	}
}

func mustEncode(tb testing.TB, e *TurnEncoder, ev *TurnEvent) []byte {
	tb.Helper()
	b, err := e.Encode(ev)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func turnEncoders(tb testing.TB) []*TurnEncoder {
	tb.Helper()
	var out []*TurnEncoder
	for _, w := range wires() {
		e, err := NewTurnEncoder(w.enc, w.opts(RecordTurnEvent))
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func fuzzSeeds(tb testing.TB, enc Encoding) [][]byte {
	tb.Helper()
	e, err := NewTurnEncoder(enc, EncoderOptions{SchemaID: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return [][]byte{
		mustEncode(tb, e, sampleTurn()), mustEncode(tb, e, benchTurn()),
		mustEncode(tb, e, &TurnEvent{Type: InputCancel, TurnID: "t", Reason: "r"}),
	}
}

func FuzzDecodeJSON(f *testing.F) {
	for _, b := range fuzzSeeds(f, EncodingJSON) {
		f.Add(b)
	}
	f.Add([]byte(`{"turn_id":"t","messages":[{"role":"user","content":"a"}],"metadata":{}}`))
	f.Add([]byte(`{"turn_id":"t","messages":[{"role":"user","content":[{"type":"json","value":[ 1.0 ,{"a":null}]}]}],"output_schema":{ }}`))
	d, encoders := NewDecoder(DecoderOptions{Registry: ourRegistry()}), turnEncoders(f)
	f.Fuzz(func(t *testing.T, b []byte) { fuzzDecode(t, d, encoders, b, nil) })
}

func FuzzDecodeConfluent(f *testing.F) {
	for _, b := range fuzzSeeds(f, EncodingAvro) {
		f.Add(b[5:])
	}
	d, encoders := NewDecoder(DecoderOptions{Registry: ourRegistry()}), turnEncoders(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDecode(t, d, encoders, append([]byte{0, 0, 0, 0, 1}, b...), nil)
	})
}

func FuzzDecodeSingle(f *testing.F) {
	for _, b := range fuzzSeeds(f, EncodingAvroSingle) {
		f.Add(b)
	}
	d, encoders := NewDecoder(DecoderOptions{Registry: ourRegistry()}), turnEncoders(f)
	f.Fuzz(func(t *testing.T, b []byte) { fuzzDecode(t, d, encoders, b, nil) })
}

func FuzzDecodeHeaders(f *testing.F) {
	bare := fuzzSeeds(f, EncodingAvroSingle)[0][10:]
	f.Add([]byte{0, 0, 0, 0, 1}, []byte{}, bare)
	f.Add(append([]byte{1}, make([]byte, 16)...), []byte("application/json"), bare)
	f.Add([]byte{}, []byte(ContentTypeCloudEvent+"; charset=utf-8"), []byte(`{"specversion":"1.0","data":{"turn_id":"t"},"data_base64":"e30="}`))
	d, encoders := NewDecoder(DecoderOptions{Registry: ourRegistry()}), turnEncoders(f)
	f.Fuzz(func(t *testing.T, id, contentType, b []byte) {
		fuzzDecode(t, d, encoders, b, []Header{{Key: HeaderContentType, Value: contentType}, {Key: HeaderSchemaID, Value: id}})
	})
}

// FuzzDecodeWithSchema decodes with whatever schema a writer may have.
func FuzzDecodeWithSchema(f *testing.F) {
	f.Add(turnWith(`{"type":"array","items":["null","int"]}`), []byte("\x04\x00\x02\x02\x00\x02t"))
	f.Add(turnWith(`{"type":"map","values":{"type":"fixed","name":"F","size":2}}`), []byte("\x02\x02aab\x00\x02t"))
	f.Add(RecordTurnEvent.Schema(), fuzzSeeds(f, EncodingAvro)[1][5:])
	encoders := turnEncoders(f)
	f.Fuzz(func(t *testing.T, schema string, b []byte) {
		r := ourRegistry()
		r.ids[9] = schema
		fuzzDecode(t, NewDecoder(DecoderOptions{Registry: r}), encoders, append([]byte{0, 0, 0, 0, 9}, b...), nil)
	})
}

func FuzzDecodeOutput(f *testing.F) {
	for _, w := range wires()[:3] {
		for _, ev := range outputs() {
			e, err := NewEncoder(w.enc, w.opts(recordOf(ev)))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(encodeAny(f, e, ev))
		}
	}
	d := NewDecoder(DecoderOptions{Registry: ourRegistry()})
	e, err := NewEncoder(EncodingJSON, EncoderOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := d.DecodeOutput(t.Context(), b, nil)
		if err != nil || rec.Unknown != nil {
			if c, ok := errors.AsType[*Error](err); err != nil && (!ok || !c.Code.DeadLetter()) {
				t.Fatalf("not classified: %v", err)
			}
			return
		}
		if at := rec.Envelope().At.UTC(); at.Year() < 0 || at.Year() > 9999 {
			return
		}
		switch {
		case rec.Tool != nil:
			_, err = e.EncodeTool(rec.Tool)
		case rec.Turn != nil:
			_, err = e.EncodeTurn(rec.Turn)
		case rec.Status != nil:
			_, err = e.EncodeStatus(rec.Status)
		}
		// Free-form values in Avro are strings that nobody has checked yet.
		if err != nil && b[0] != 0 && b[0] != 0xC3 {
			t.Fatal(err)
		}
	})
}
