package schemas

import "context"

// Encoding names how the records of a topic are written.
type Encoding string

// The encodings.
const (
	EncodingJSON       Encoding = "json"
	EncodingAvro       Encoding = "avro"
	EncodingAvroSingle Encoding = "avro-single"
)

// Output is an event that can be written: *ToolEvent, *TurnOutput or *StatusEvent.
type Output interface {
	*ToolEvent | *TurnOutput | *StatusEvent
}

// Encoder writes the events of one topic. Implementations are safe for concurrent use; what they return is the caller's.
type Encoder interface {
	// EncodeTool, EncodeTurn and EncodeStatus return the record value.
	EncodeTool(ev *ToolEvent) ([]byte, error)
	EncodeTurn(ev *TurnOutput) ([]byte, error)
	EncodeStatus(ev *StatusEvent) ([]byte, error)
	// Headers are the headers that the encoding needs on each record, content-type among them. Not to be changed.
	Headers() []Header
}

// Decoded is a turn event that was read, with defaults filled in.
type Decoded struct {
	Event *TurnEvent
	// Hash is the payload hash: a version byte and the SHA-256 of the canonical fields as sent. It does not depend on the
	// encoding.
	Hash []byte
	// Lone says that the record names no session: the event's is the turn's own id, and no other turn is of it.
	Lone bool
	// Encoding is what the record was recognised as.
	Encoding Encoding
}

// Registry finds writer schemas, with all references inlined. Errors are *Error: schema_unknown when there is no such
// schema, class retryable when the registry did not answer.
type Registry interface {
	SchemaByID(ctx context.Context, id int) (string, error)
	SchemaByGUID(ctx context.Context, guid string) (string, error)
}
