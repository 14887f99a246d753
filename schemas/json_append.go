package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// jsonObject appends the members of one JSON object, in the order they are given, and of those inside it. encoding/json
// reflects on each event and compacts each RawMessage again; at twelve events a turn that was the larger part of the
// worker's CPU. What this writes is byte for byte what encoding/json writes without HTML escaping, except for times: a test holds the two together.
type jsonObject struct {
	b []byte
	// err is the first fault; the bytes are of no use then.
	err error
	// canonical writes strings and free-form values as RFC 8785 has them. The order of members is the caller's part.
	canonical bool
}

// key starts a member. Keys are ours: they need no escaping.
func (o *jsonObject) key(k string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, k...)
	o.b = append(o.b, '"', ':')
}

func (o *jsonObject) close() { o.b = append(o.b, '}') }

func (o *jsonObject) str(k, v string) {
	o.key(k)
	o.b = appendJSONString(o.b, v, o.canonical)
}

func (o *jsonObject) optStr(k, v string) {
	if v != "" {
		o.str(k, v)
	}
}

func (o *jsonObject) int(k string, v int64) {
	o.key(k)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *jsonObject) optInt64(k string, v *int64) {
	if v != nil {
		o.int(k, *v)
	}
}

func (o *jsonObject) optInt32(k string, v *int32) {
	if v != nil {
		o.int(k, int64(*v))
	}
}

func (o *jsonObject) optBool(k string, v *bool) {
	if v != nil {
		o.key(k)
		o.b = strconv.AppendBool(o.b, *v)
	}
}

func (o *jsonObject) time(k string, v time.Time) {
	o.key(k)
	v = v.UTC()
	if y := v.Year(); y < 0 || y > 9999 {
		o.err = fmt.Errorf("%s: the year %d cannot be written", k, y)
		return
	}
	o.b = append(AppendTime(append(o.b, '"'), v), '"')
}

// raw writes free-form JSON. It is checked, because one bad value would spoil the record for every reader, and compacted
// where it holds white space.
func (o *jsonObject) raw(k string, v json.RawMessage) {
	o.key(k)
	var err error
	if o.canonical {
		v, err = jcs.Transform(v)
		o.b = append(o.b, v...)
	} else {
		o.b, err = appendRaw(o.b, v)
	}
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("%s is no JSON: %w", k, err)
	}
}

func (o *jsonObject) optRaw(k string, v json.RawMessage) {
	if len(v) > 0 {
		o.raw(k, v)
	}
}

func (o *jsonObject) optStrings(k string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	// Most events have few, and each of a turn has them again: a small array saves the allocation.
	var few [8]string
	names := few[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	o.key(k)
	for i, name := range names {
		o.b = append(o.b, "{,"[min(i, 1)])
		o.b = appendJSONString(o.b, name, o.canonical)
		o.b = append(o.b, ':')
		o.b = appendJSONString(o.b, m[name], o.canonical)
	}
	o.b = append(o.b, '}')
}

// list writes a list of strings, also an empty one.
func (o *jsonObject) list(k string, v []string) {
	o.key(k)
	o.b = append(o.b, '[')
	for i, s := range v {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendJSONString(o.b, s, o.canonical)
	}
	o.b = append(o.b, ']')
}

// appendArray writes an array of objects, each through its append function.
func appendArray[T any](o *jsonObject, k string, items []T, member func(o *jsonObject, item *T)) {
	o.key(k)
	o.b = append(o.b, '[')
	for i := range items {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = append(o.b, '{')
		member(o, &items[i])
		o.close()
	}
	o.b = append(o.b, ']')
}

// appendNested writes an object under a key.
func appendNested[T any](o *jsonObject, k string, v *T, member func(o *jsonObject, v *T)) {
	if v == nil {
		return
	}
	o.key(k)
	o.b = append(o.b, '{')
	member(o, v)
	o.close()
}

// maxFreeDepth is how deep free-form JSON may nest that we write.
const maxFreeDepth = 1000

func appendRaw(dst []byte, v json.RawMessage) ([]byte, error) {
	spaced, err := checkRaw(v)
	if err != nil || !spaced {
		return append(dst, v...), err
	}
	buf := bytes.NewBuffer(dst)
	err = json.Compact(buf, v)
	return buf.Bytes(), err
}

// checkRaw reports whether v, which must be one JSON value in valid UTF-8, holds white space between its tokens.
func checkRaw(v []byte) (spaced bool, err error) {
	if !utf8.Valid(v) {
		return false, errNotUTF8
	}
	s := jsonScanner{b: v, left: maxFreeDepth, most: maxFreeDepth}
	end, err := s.value(s.space(0))
	if err == nil && s.space(end) != len(v) {
		err = s.unexpected(s.space(end))
	}
	return s.spaced, err
}

// AppendTime appends a time as events have it: RFC 3339 in UTC with milliseconds. It knows years from 0 to 9999; others come out as
// time.Time.Format writes them.
func AppendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	y, mo, d := t.Date()
	if y < 0 || y > 9999 {
		return t.AppendFormat(dst, time.RFC3339)
	}
	h, mi, s := t.Clock()
	ms := t.Nanosecond() / 1e6
	return append(dst,
		digit(y/1000), digit(y/100), digit(y/10), digit(y), '-', digit(int(mo)/10), digit(int(mo)), '-', digit(d/10), digit(d),
		'T', digit(h/10), digit(h), ':', digit(mi/10), digit(mi), ':', digit(s/10), digit(s),
		'.', digit(ms/100), digit(ms/10), digit(ms), 'Z')
}

func digit(n int) byte { return "0123456789"[n%10] }

// eight is the first eight bytes of a string.
func eight(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// unescaped reports whether none of eight bytes has to be looked at: no control character, quote, backslash or part of a longer
// character. A byte below n borrows from the top bit when n is taken off it, and a byte that equals c is below 1 once it is
// combined with c; a borrow may show in the byte above as well, which only costs a closer look.
func unescaped(w uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, backslash := w^ones*'"', w^ones*'\\'
	return (w|(w-ones*' ')|(quote-ones)|(backslash-ones))&tops == 0
}

// appendJSONString writes a string. What is no UTF-8 becomes U+FFFD.
func appendJSONString(dst []byte, s string, canonical bool) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		if len(s)-i >= 8 && unescaped(eight(s[i:])) {
			i += 8
			continue
		}
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				dst = append(append(dst, s[start:i]...), `\ufffd`...)
				start = i + 1
			case !canonical && (r == '\u2028' || r == '\u2029'):
				// encoding/json escapes the two, because JavaScript once took them for line ends.
				dst = append(append(dst, s[start:i]...), `\u202`...)
				dst = append(dst, hexDigits[r&0xf])
				start = i + size
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
