package fact

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// The facts that every turn has are encoded by hand, the first of them and the three of which it has one for every response and call:
// with reflection that was a twentieth of the worker's CPU. The bytes are those that the library writes of the structs' tags, which a
// test holds them to; the library reads them.

// CBOR's major types (RFC 8949, section 3.1), where the head of an item has them.
const (
	cborUint  = 0 << 5
	cborInt   = 1 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborMap   = 5 << 5
	cborFalse = 7<<5 | 20
	cborNull  = 7<<5 | 22
)

// appendHead appends the head of an item with its argument in the shortest form.
func appendHead(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

// mapWriter writes a map with fewer than 24 keys, each below 24: its head counts them as they come.
type mapWriter struct {
	b    []byte
	head int
}

func openMap(dst []byte) mapWriter { return mapWriter{append(dst, cborMap), len(dst)} }

func (m *mapWriter) key(k byte) {
	m.b[m.head]++
	m.b = append(m.b, k)
}

func (m *mapWriter) text(k byte, s string) {
	m.key(k)
	m.b = appendText(m.b, s)
}

func (m *mapWriter) optText(k byte, s string) {
	if s != "" {
		m.text(k, s)
	}
}

func (m *mapWriter) bytes(k byte, b []byte) {
	m.key(k)
	if b == nil {
		m.b = append(m.b, cborNull)
		return
	}
	m.b = append(appendHead(m.b, cborBytes, uint64(len(b))), b...)
}

func (m *mapWriter) optBytes(k byte, b []byte) {
	if len(b) > 0 {
		m.bytes(k, b)
	}
}

func (m *mapWriter) int(k byte, n int64) {
	m.key(k)
	if n < 0 {
		m.b = appendHead(m.b, cborInt, uint64(-(n + 1))) //nolint:gosec // Not negative.
		return
	}
	m.b = appendHead(m.b, cborUint, uint64(n))
}

func (m *mapWriter) optInt(k byte, n int64) {
	if n != 0 {
		m.int(k, n)
	}
}

func (m *mapWriter) optRef(k byte, n *int64) {
	if n != nil {
		m.int(k, *n)
	}
}

func (m *mapWriter) optTrue(k byte, v bool) {
	if v {
		m.key(k)
		m.b = append(m.b, cborFalse+1)
	}
}

// time writes a time as text, the zero time as null.
func (m *mapWriter) time(k byte, t time.Time) {
	if t.IsZero() {
		m.key(k)
		m.b = append(m.b, cborNull)
		return
	}
	var buf [len(time.RFC3339Nano)]byte
	text := t.UTC().AppendFormat(buf[:0], time.RFC3339Nano)
	m.key(k)
	m.b = append(appendHead(m.b, cborText, uint64(len(text))), text...)
}

// appendFact appends a fact of one of those kinds, and reports whether it is one.
func appendFact(dst []byte, f Fact) ([]byte, bool) {
	switch f := f.(type) {
	case *Accepted:
		return f.appendTo(dst), true
	case *Responded:
		return f.appendTo(dst), true
	case *Began:
		return f.appendTo(dst), true
	case *Finished:
		return f.appendTo(dst), true
	case *NotBegun, *Cancelled, *Ended, *Restarted:
	}
	return dst, false
}

func (f *Responded) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.key(1)
	m.b = f.Response.appendTo(m.b)
	if len(f.Wave) > 0 {
		m.key(2)
		m.b = appendCalls(m.b, f.Wave)
	}
	m.time(3, f.At)
	m.text(4, f.Worker)
	return m.b
}

func (f *Began) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.key(1)
	m.b = appendCalls(m.b, f.Calls)
	m.time(2, f.At)
	m.text(3, f.Worker)
	m.optTrue(4, f.Again)
	return m.b
}

func (f *Finished) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.key(1)
	m.b = f.Result.appendTo(m.b)
	m.time(2, f.At)
	m.text(3, f.Worker)
	return m.b
}

func (r *Response) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.int(1, int64(r.Step))
	m.optText(2, r.Text)
	if len(r.Calls) > 0 {
		m.key(3)
		m.b = appendList(m.b, r.Calls)
	}
	m.text(4, r.FinishReason)
	m.text(5, r.Provider)
	m.text(6, r.Model)
	m.key(7)
	m.b = appendUsage(m.b, &r.Usage)
	m.optRef(8, r.CostMicros)
	m.int(9, int64(r.Duration))
	m.optBytes(10, r.Opaque)
	return m.b
}

func (a *Asked) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.text(1, a.Name)
	m.text(2, a.CallID)
	m.bytes(3, a.Arguments)
	return m.b
}

func appendUsage(dst []byte, u *schemas.Usage) []byte {
	m := openMap(dst)
	for i, n := range [...]int64{u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.ReasoningTokens} {
		m.optInt(byte(i+1), n)
	}
	return m.b
}

func appendCalls(dst []byte, calls []Call) []byte {
	if calls == nil {
		return append(dst, cborNull)
	}
	return appendList(dst, calls)
}

func appendList[T any, P interface {
	*T
	appendTo(dst []byte) []byte
}](dst []byte, list []T) []byte {
	dst = appendHead(dst, cborArray, uint64(len(list)))
	for i := range list {
		dst = P(&list[i]).appendTo(dst)
	}
	return dst
}

func (c *Call) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.key(1)
	m.b = c.Ref.appendTo(m.b)
	m.optText(2, c.CallID)
	m.key(3)
	m.b = c.Tool.appendTo(m.b)
	m.bytes(4, c.Input)
	return m.b
}

func (r Ref) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.int(1, int64(r.Step))
	m.int(2, int64(r.Position))
	return m.b
}

func (t Tool) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.text(1, t.Name)
	m.text(2, t.Version)
	m.text(3, string(t.Effect))
	m.text(4, string(t.Idempotency))
	m.text(5, t.Fingerprint)
	return m.b
}

func (r *Result) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.key(1)
	m.b = r.Ref.appendTo(m.b)
	m.optText(2, r.CallID)
	m.key(3)
	m.b = r.Tool.appendTo(m.b)
	m.text(4, r.Status)
	m.optText(5, string(r.Code))
	m.optText(6, r.Message)
	m.optBytes(7, r.Output)
	m.optTrue(8, r.Started)
	m.optInt(9, int64(r.Attempts))
	m.optInt(10, int64(r.Duration))
	m.optRef(11, r.CostMicros)
	m.optText(12, r.ForModel)
	m.optBytes(13, r.InputHash)
	return m.b
}
