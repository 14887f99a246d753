package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/schemas"
)

// letter is one dead letter, as far as it can be understood.
type letter struct {
	rec *kgo.Record
	// dead is what its headers say; ours is false if no worker wrote them.
	dead consumer.DeadLetter
	ours bool
	// event is nil if the value does not decode, or is not whole.
	event    *schemas.TurnEvent
	encoding schemas.Encoding
}

// read takes a record of the dead-letter topic apart.
func (d *dlq) read(ctx context.Context, rec *kgo.Record) *letter {
	l := &letter{rec: rec}
	if l.dead, l.ours = consumer.ReadDeadLetter(rec); !l.ours || l.dead.Cut {
		return l
	}
	seen, _ := d.inspect(ctx, l, rec.Key)
	l.event, l.encoding = seen.Event, seen.Encoding
	return l
}

// inspect looks at the refused record as a worker would that finds it now, under the key and where that belongs.
func (d *dlq) inspect(ctx context.Context, l *letter, key []byte) (*consumer.Record, *schemas.Error) {
	return d.inspector.Inspect(ctx, &kgo.Record{
		Topic: d.turns, Partition: d.place(l, key), Key: key, Value: l.rec.Value, Headers: l.dead.Headers,
	})
}

// place is the partition that a key belongs on. Where only the producers know, it is the one that the record came from.
func (d *dlq) place(l *letter, key []byte) int32 {
	if to, known := d.partitioner.Place(key, d.partitions); known {
		return to
	}
	return l.dead.Partition
}

func (l *letter) name() string { return fmt.Sprintf("%d/%d", l.rec.Partition, l.rec.Offset) }

func (l *letter) reason() string {
	if !l.ours {
		return "?"
	}
	return string(l.dead.Reason)
}

// session is that of the event, else the key: they should be the same.
func (l *letter) session() string {
	if l.event != nil && l.event.SessionID != "" {
		return l.event.SessionID
	}
	return string(l.rec.Key)
}

func (l *letter) turn() string {
	if l.event == nil {
		return ""
	}
	return l.event.TurnID
}

// origin is where the refused record stood, without the topic where that is the usual one.
func (l *letter) origin(usual string) string {
	if !l.ours {
		return ""
	}
	place := fmt.Sprintf("%d/%d", l.dead.Partition, l.dead.Offset)
	if l.dead.Topic != usual {
		return l.dead.Topic + "/" + place
	}
	return place
}

// letterJSON is a dead letter as list and show print it for programs. Bytes that are no text stand in base64.
type letterJSON struct {
	Partition    int32     `json:"partition"`
	Offset       int64     `json:"offset"`
	At           time.Time `json:"at"`
	Reason       string    `json:"reason"`
	Detail       string    `json:"detail,omitempty"`
	SessionID    string    `json:"session_id,omitempty"`
	TurnID       string    `json:"turn_id,omitempty"`
	Agent        string    `json:"agent,omitempty"`
	Key          *string   `json:"key,omitempty"`
	KeyBase64    *string   `json:"key_base64,omitempty"`
	From         *fromJSON `json:"from,omitempty"`
	ReplayedFrom string    `json:"replayed_from,omitempty"`
	ValueBytes   int       `json:"value_bytes"`
	Cut          bool      `json:"cut,omitempty"`
	ValueSHA256  string    `json:"value_sha256,omitempty"`
	Encoding     string    `json:"encoding,omitempty"`

	// The rest is only in what show prints.

	Headers []headerJSON    `json:"headers,omitempty"`
	Event   json.RawMessage `json:"event,omitempty"`
	Value   *string         `json:"value_base64,omitempty"`
	Advice  string          `json:"advice,omitempty"`
}

type fromJSON struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

type headerJSON struct {
	Key    string  `json:"key"`
	Value  *string `json:"value,omitempty"`
	Base64 *string `json:"value_base64,omitempty"`
}

func (l *letter) json() *letterJSON {
	j := &letterJSON{
		Partition: l.rec.Partition, Offset: l.rec.Offset, At: l.rec.Timestamp.UTC(), Reason: l.reason(), Detail: l.dead.Detail,
		TurnID: l.turn(), ReplayedFrom: l.dead.ReplayedFrom, ValueBytes: len(l.rec.Value), Encoding: string(l.encoding),
	}
	if l.event != nil {
		j.SessionID, j.Agent = l.event.SessionID, l.event.Agent
	}
	j.Key, j.KeyBase64 = textOrBase64(l.rec.Key)
	if l.ours {
		j.From = &fromJSON{l.dead.Topic, l.dead.Partition, l.dead.Offset}
		j.Cut, j.ValueBytes, j.ValueSHA256 = l.dead.Cut, l.dead.ValueBytes, l.dead.ValueSHA256
	}
	return j
}

// textOrBase64 gives bytes as text if they are any, else in base64, and neither for nil.
func textOrBase64(b []byte) (text, coded *string) {
	switch {
	case b == nil:
		return nil, nil
	case utf8.Valid(b):
		return new(string(b)), nil
	}
	return nil, new(base64.StdEncoding.EncodeToString(b))
}

// pretty is the value for a person: JSON indented, Avro as JSON, other text as it is, and the rest as a hex dump.
func (l *letter) pretty() string {
	var indented bytes.Buffer
	switch {
	case json.Indent(&indented, l.rec.Value, "", "  ") == nil:
		return indented.String()
	case l.event != nil:
		if b, err := json.MarshalIndent(l.event, "", "  "); err == nil {
			return string(b)
		}
	}
	if isText(l.rec.Value) {
		return string(l.rec.Value)
	}
	return hexDump(l.rec.Value)
}

// isText reports whether bytes are worth reading as text; what was cut may end within a character.
func isText(b []byte) bool {
	for range utf8.UTFMax {
		if utf8.Valid(b) {
			return !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && !strings.ContainsRune("\n\r\t", r) })
		}
		if len(b) == 0 {
			return false
		}
		b = b[:len(b)-1]
	}
	return false
}
