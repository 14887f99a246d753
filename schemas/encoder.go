package schemas

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Header keys and content types that records carry.
const (
	HeaderContentType = "content-type"
	// HeaderSchemaID is where Confluent's serializers put a schema's id when it is not in the record's first bytes.
	HeaderSchemaID = "__value_schema_id"

	ContentTypeJSON       = "application/json"
	ContentTypeAvro       = "application/avro"
	ContentTypeCloudEvent = "application/cloudevents+json"
)

// EncoderOptions says what an encoder writes.
type EncoderOptions struct {
	// Record is the record of the topic. EncodingAvro needs it, because a schema id stands for one record's schema.
	Record Record
	// SchemaID is the id under which the registry has Record's schema; EncodingAvro needs it, or GUID with IDInHeader.
	SchemaID int
	// GUID is the schema's GUID in the registry, in hex with or without dashes. Only used with IDInHeader.
	GUID string
	// IDInHeader puts the GUID, or else the id, in the header __value_schema_id and leaves the value bare. Readers that
	// know only the five bytes before the value cannot read that.
	IDInHeader bool
}

// NewEncoder returns the encoder of an encoding.
func NewEncoder(enc Encoding, opts EncoderOptions) (Encoder, error) {
	return newEncoder(enc, opts)
}

// TurnEncoder writes turn events, for those who produce them. It is safe for concurrent use.
type TurnEncoder struct{ e *encoder }

// NewTurnEncoder returns the encoder of turn events in an encoding. Record need not be set.
func NewTurnEncoder(enc Encoding, opts EncoderOptions) (*TurnEncoder, error) {
	opts.Record = RecordTurnEvent
	e, err := newEncoder(enc, opts)
	if err != nil {
		return nil, err
	}
	return &TurnEncoder{e: e}, nil
}

// Encode returns the record value. It does not check the event: that is the worker's part.
func (t *TurnEncoder) Encode(ev *TurnEvent) ([]byte, error) {
	if t.e.avro == nil {
		return t.e.json(marshal(ev))
	}
	var faults rawFaults
	return t.e.binary(RecordTurnEvent, nativeTurnEvent(ev, &faults), faults.err)
}

// Headers are the headers that the encoding needs on each record. Not to be changed.
func (t *TurnEncoder) Headers() []Header { return t.e.headers }

// EncodeTurnEvent encodes one turn event; whoever encodes many makes a TurnEncoder.
func EncodeTurnEvent(ev *TurnEvent, enc Encoding, opts EncoderOptions) ([]byte, []Header, error) {
	t, err := NewTurnEncoder(enc, opts)
	if err != nil {
		return nil, nil, err
	}
	b, err := t.Encode(ev)
	if err != nil {
		return nil, nil, err
	}
	return b, t.Headers(), nil
}

// encoder is the one Encoder. avro is nil for JSON.
type encoder struct {
	avro    map[Record]avroWriter
	headers []Header
}

// avroWriter writes one record's values: prefix, then binary.
type avroWriter struct {
	prefix []byte
	codec  binaryCodec
}

func newEncoder(enc Encoding, opts EncoderOptions) (*encoder, error) {
	switch enc {
	case EncodingJSON:
		return &encoder{headers: []Header{{Key: HeaderContentType, Value: []byte(ContentTypeJSON)}}}, nil
	case EncodingAvroSingle:
		return newSingleEncoder()
	case EncodingAvro:
		return newRegistryEncoder(opts)
	}
	return nil, fmt.Errorf("unknown encoding %q: it must be json, avro or avro-single", string(enc))
}

func avroHeaders() []Header {
	return []Header{{Key: HeaderContentType, Value: []byte(ContentTypeAvro)}}
}

func newSingleEncoder() (*encoder, error) {
	e := &encoder{avro: make(map[Record]avroWriter), headers: avroHeaders()}
	for _, r := range Records() {
		t := r.parse()
		codec, err := newGoavroCodec(t)
		if err != nil {
			return nil, fmt.Errorf("compile %s: %w", r.file(), err)
		}
		e.avro[r] = avroWriter{prefix: singleHeader(t.fingerprint()), codec: codec}
	}
	return e, nil
}

func newRegistryEncoder(opts EncoderOptions) (*encoder, error) {
	if opts.Record.file() == "" {
		return nil, errors.New("encoding avro needs the record whose schema the id stands for")
	}
	codec, err := newGoavroCodec(opts.Record.parse())
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", opts.Record.file(), err)
	}
	w := avroWriter{codec: codec}
	e := &encoder{headers: avroHeaders()}
	id, err := opts.idBytes()
	if err != nil {
		return nil, err
	}
	if opts.IDInHeader {
		e.headers = append(e.headers, Header{Key: HeaderSchemaID, Value: id})
	} else {
		w.prefix = id
	}
	e.avro = map[Record]avroWriter{opts.Record: w}
	return e, nil
}

// idBytes is the schema's id with its magic byte: 1 and a GUID, or 0 and an id.
func (o *EncoderOptions) idBytes() ([]byte, error) {
	if o.IDInHeader && o.GUID != "" {
		guid, err := hex.DecodeString(strings.ReplaceAll(o.GUID, "-", ""))
		if err != nil || len(guid) != 16 {
			return nil, errors.New("the schema's GUID is not 16 bytes in hex")
		}
		return append([]byte{1}, guid...), nil
	}
	if o.SchemaID <= 0 || int64(o.SchemaID) > 1<<31-1 {
		return nil, errors.New("encoding avro needs the id of the schema in the registry")
	}
	return binary.BigEndian.AppendUint32([]byte{0}, uint32(o.SchemaID)), nil
}

// singleHeader is what marks Avro's single-object encoding.
func singleHeader(fingerprint uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{0xC3, 0x01}, fingerprint)
}

func (e *encoder) Headers() []Header { return e.headers }

func (e *encoder) EncodeTool(ev *ToolEvent) ([]byte, error) { return e.EncodeToolTo(ev, nil) }

func (e *encoder) EncodeTurn(ev *TurnOutput) ([]byte, error) { return e.EncodeTurnTo(ev, nil) }

// EncodeToolTo is EncodeTool for a caller that has memory for n bytes; what was made in another place is returned as it is.
func (e *encoder) EncodeToolTo(ev *ToolEvent, room func(n int) []byte) ([]byte, error) {
	if e.avro == nil {
		return e.json(marshalTo(ev, room))
	}
	var faults rawFaults
	native := nativeToolEvent(ev, &faults)
	return e.binary(RecordToolEvent, native, faults.err)
}

// EncodeTurnTo is the same for EncodeTurn.
func (e *encoder) EncodeTurnTo(ev *TurnOutput, room func(n int) []byte) ([]byte, error) {
	if e.avro == nil {
		return e.json(marshalTo(ev, room))
	}
	var faults rawFaults
	native := nativeTurnOutput(ev, &faults)
	return e.binary(RecordTurnOutput, native, faults.err)
}

func (e *encoder) EncodeStatus(ev *StatusEvent) ([]byte, error) {
	if e.avro == nil {
		return e.json(marshal(ev))
	}
	return e.binary(RecordStatusEvent, nativeStatusEvent(ev), nil)
}

func (e *encoder) json(b []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, encodeError(err)
	}
	return b, nil
}

func (e *encoder) binary(r Record, native map[string]any, err error) ([]byte, error) {
	if err != nil {
		return nil, encodeError(err)
	}
	w, ok := e.avro[r]
	if !ok {
		return nil, encodeError(fmt.Errorf("the encoder's schema id is not that of %s", string(r)))
	}
	validStrings(native)
	b, err := w.codec.append(append(make([]byte, 0, 512), w.prefix...), native)
	if err != nil {
		return nil, encodeError(err)
	}
	return b, nil
}

// encodeError is a fault of ours: what we write is made by us.
func encodeError(err error) *Error {
	return &Error{Code: CodeInternal, Message: "an event could not be encoded", Err: err}
}
