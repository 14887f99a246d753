package schemas

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"slices"
)

// DecoderOptions are the limits of a decoder; what is 0 takes its default.
type DecoderOptions struct {
	// Registry finds the schemas of records in EncodingAvro. Without one such records are schema_unknown.
	Registry Registry
	// MaxBytes is how large a record may be; 512 KiB.
	MaxBytes int
	// MaxDepth is how deep JSON may nest, free-form values included; 64.
	MaxDepth int
	// MaxValues is of how many values (fields and items, nested ones included) a record in Avro may consist; 131,072. It
	// bounds the memory that a record takes, as MaxBytes cannot: an Avro value may take no bytes.
	MaxValues int
	// MaxSchemaBytes and MaxSchemaDepth bound the schema of a writer; 256 KiB and 64.
	MaxSchemaBytes, MaxSchemaDepth int
	// MaxSchemas is how many writer schemas are kept compiled; 256.
	MaxSchemas int
}

func (o DecoderOptions) withDefaults() DecoderOptions {
	o.MaxBytes = positiveOr(o.MaxBytes, 512<<10)
	o.MaxDepth = positiveOr(o.MaxDepth, 64)
	o.MaxValues = positiveOr(o.MaxValues, 1<<17)
	o.MaxSchemas = positiveOr(o.MaxSchemas, 256)
	return o
}

// Decoder reads the records of every topic in every encoding. It recognises the encoding by the record: a header
// __value_schema_id, the content type of a structured CloudEvent, else the first byte. It is safe for concurrent use.
type Decoder struct {
	opts    DecoderOptions
	turns   *writerSchemas
	outputs *writerSchemas
}

// NewDecoder returns a decoder.
func NewDecoder(opts DecoderOptions) *Decoder {
	opts = opts.withDefaults()
	return &Decoder{
		opts:    opts,
		turns:   newWriterSchemas(opts, RecordTurnEvent),
		outputs: newWriterSchemas(opts, RecordToolEvent, RecordTurnOutput, RecordStatusEvent),
	}
}

// Decode reads a turn event. A nil value is a tombstone. Errors are *Error; none holds anything of the record.
//
// With an error of code invalid_turn, Decoded is not nil if the ids of the event could be read and are valid: its Event
// then has them, its defaults and its metadata, so that whoever waits for the turn can be told; nothing else in it counts.
func (d *Decoder) Decode(ctx context.Context, value []byte, headers []Header) (dec *Decoded, err error) {
	defer func() {
		if r := recover(); r != nil {
			dec, err = nil, panicError(r)
		}
	}()
	form, err := jsonLimits{bytes: d.opts.MaxBytes, depth: d.opts.MaxDepth}.recognise(value, headers)
	if err != nil {
		return nil, err
	}
	var faults turnFaults
	var ev *TurnEvent
	if form.encoding == EncodingJSON {
		ev = faults.turnFromJSON(form.payload)
	} else {
		m, _, err := d.turns.decode(ctx, d.opts, form)
		if err != nil {
			return nil, err
		}
		ev = faults.turnFromNative(m, d.opts.MaxDepth)
	}
	faults.checkTurn(ev)
	var hash []byte
	if faults.err == nil {
		hash = faults.payloadHash(ev)
	}
	if ev.Type == "" {
		ev.Type = InputTurn
	}
	lone := ev.SessionID == ""
	if lone {
		ev.SessionID = ev.TurnID
	}
	switch {
	case faults.badIDs:
		return nil, faults.err
	case faults.err != nil:
		return &Decoded{Event: ev, Encoding: form.encoding}, faults.err
	}
	return &Decoded{Event: ev, Hash: hash, Lone: lone, Encoding: form.encoding}, nil
}

// panicError makes an error of a panic: goavro is known to have some. The stack is kept for the log; what was thrown is
// not, since it may hold data.
func panicError(thrown any) *Error {
	e := Errorf(CodeUndecodable, "the decoder gave up on the record")
	e.Err = fmt.Errorf("panic (%T)\n%s", thrown, debug.Stack())
	return e
}

// wireForm is a record as it was recognised.
type wireForm struct {
	encoding Encoding
	// payload is the checked JSON text, without white space around it, or the bare Avro binary.
	payload []byte
	// id, guid or fingerprint name the writer's schema; guid is empty and id negative when they do not.
	id          int
	guid        string
	fingerprint uint64
}

// jsonLimits bound a record, and how deep its JSON may nest.
type jsonLimits struct{ bytes, depth int }

// recognise tells the encoding of a record.
func (l jsonLimits) recognise(value []byte, headers []Header) (wireForm, error) {
	switch {
	case value == nil:
		return wireForm{}, Errorf(CodeTombstone, "the record has no value")
	case len(value) > l.bytes:
		return wireForm{}, Errorf(CodeTooLarge, "the record has %d bytes, more than %d", len(value), l.bytes)
	case len(value) == 0:
		return wireForm{}, Errorf(CodeUndecodable, "the value is empty")
	}
	if id := lastHeader(headers, HeaderSchemaID); len(id) > 0 {
		return formFromHeader(id, value)
	}
	if isCloudEvent(lastHeader(headers, HeaderContentType)) {
		return l.openCloudEvent(value)
	}
	return l.formFromValue(value)
}

func (l jsonLimits) formFromValue(value []byte) (wireForm, error) {
	start := skipJSONSpace(value, 0)
	switch {
	case start < len(value) && value[start] == '{':
		if err := checkJSON(value, l.depth); err != nil {
			return wireForm{}, Errorf(CodeUndecodable, "the record is not the JSON it begins as: %v", err)
		}
		return wireForm{encoding: EncodingJSON, payload: bytes.TrimRight(value[start:], " \t\r\n")}, nil
	case len(value) >= 5 && value[0] == 0:
		return wireForm{encoding: EncodingAvro, id: int(binary.BigEndian.Uint32(value[1:])), payload: value[5:]}, nil
	case len(value) >= 10 && value[0] == 0xC3 && value[1] == 0x01:
		return wireForm{
			encoding: EncodingAvroSingle, id: -1,
			fingerprint: binary.LittleEndian.Uint64(value[2:]), payload: value[10:],
		}, nil
	}
	return wireForm{}, Errorf(CodeUndecodable, "the value is neither a JSON object nor Avro with a schema id or fingerprint")
}

// formFromHeader reads the header that Confluent's serializers write; the value is bare then.
func formFromHeader(id, value []byte) (wireForm, error) {
	switch {
	case len(id) == 17 && id[0] == 1:
		g := hex.EncodeToString(id[1:])
		guid := g[:8] + "-" + g[8:12] + "-" + g[12:16] + "-" + g[16:20] + "-" + g[20:]
		return wireForm{encoding: EncodingAvro, id: -1, guid: guid, payload: value}, nil
	case len(id) == 5 && id[0] == 0:
		return wireForm{encoding: EncodingAvro, id: int(binary.BigEndian.Uint32(id[1:])), payload: value}, nil
	}
	return wireForm{}, Errorf(CodeUndecodable, "the header %s holds neither a schema GUID nor a schema id", HeaderSchemaID)
}

// lastHeader returns the value of the last header of a key that is not empty. Content types come in any case.
func lastHeader(headers []Header, key string) []byte {
	for _, h := range slices.Backward(headers) {
		if len(h.Value) > 0 && bytes.EqualFold([]byte(h.Key), []byte(key)) {
			return h.Value
		}
	}
	return nil
}
