package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

var errNotUTF8 = errors.New("it is not valid UTF-8")

// checkJSON checks that b is exactly one JSON text (RFC 8259) in valid UTF-8 that nests at most maxDepth levels. Its errors
// give positions, never data.
func checkJSON(b []byte, maxDepth int) error {
	if !utf8.Valid(b) {
		return errNotUTF8
	}
	s := jsonScanner{b: b, left: maxDepth, most: maxDepth}
	end, err := s.value(s.space(0))
	if err != nil {
		return err
	}
	if end = s.space(end); end != len(b) {
		return fmt.Errorf("something follows the value, at byte %d", end)
	}
	return nil
}

// jsonScanner checks JSON by recursive descent, at most most levels deep, of which left are left.
type jsonScanner struct {
	b          []byte
	left, most int
	// spaced says that there was white space between tokens.
	spaced bool
}

func (s *jsonScanner) space(i int) int {
	for i < len(s.b) && isJSONSpace(s.b[i]) {
		s.spaced = true
		i++
	}
	return i
}

func isJSONSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// value checks the value at i and returns where it ends.
func (s *jsonScanner) value(i int) (int, error) {
	if i >= len(s.b) {
		return 0, errors.New("it is cut off")
	}
	switch c := s.b[i]; {
	case c == '"':
		return s.str(i)
	case c == '{' || c == '[':
		return s.nested(i, c)
	case c == 't':
		return s.literal(i, "true")
	case c == 'f':
		return s.literal(i, "false")
	case c == 'n':
		return s.literal(i, "null")
	case c == '-' || isDigit(c):
		return s.number(i)
	}
	return 0, s.unexpected(i)
}

func (s *jsonScanner) nested(i int, open byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, fmt.Errorf("it nests more than %d deep, at byte %d", s.most, i)
	}
	defer func() { s.left++ }()
	last := open + 2 // Both '[' and '{' come two before what closes them.
	i = s.space(i + 1)
	if i < len(s.b) && s.b[i] == last {
		return i + 1, nil
	}
	for {
		var err error
		if open == '{' {
			if i, err = s.key(i); err != nil {
				return 0, err
			}
		}
		if i, err = s.value(i); err != nil {
			return 0, err
		}
		i = s.space(i)
		switch {
		case i < len(s.b) && s.b[i] == last:
			return i + 1, nil
		case i < len(s.b) && s.b[i] == ',':
			i = s.space(i + 1)
		default:
			return 0, s.unexpected(i)
		}
	}
}

func (s *jsonScanner) key(i int) (int, error) {
	if i >= len(s.b) || s.b[i] != '"' {
		return 0, s.unexpected(i)
	}
	i, err := s.str(i)
	if err != nil {
		return 0, err
	}
	if i = s.space(i); i >= len(s.b) || s.b[i] != ':' {
		return 0, s.unexpected(i)
	}
	return s.space(i + 1), nil
}

func (s *jsonScanner) str(i int) (int, error) {
	for i++; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			return i + 1, nil
		case c < ' ':
			return 0, s.unexpected(i)
		case c == '\\':
			i++
			if i < len(s.b) && s.b[i] == 'u' {
				if i+4 >= len(s.b) || !isHex(s.b[i+1:i+5]) {
					return 0, s.unexpected(i)
				}
				i += 4
			} else if i >= len(s.b) || bytes.IndexByte([]byte(`"\/bfnrt`), s.b[i]) < 0 {
				return 0, s.unexpected(i)
			}
		}
	}
	return 0, s.unexpected(i)
}

func (s *jsonScanner) number(i int) (int, error) {
	if s.b[i] == '-' {
		i++
	}
	start := i
	if i = s.digits(i); i == start || s.b[start] == '0' && i > start+1 {
		return 0, s.unexpected(start)
	}
	if i < len(s.b) && s.b[i] == '.' {
		start = i + 1
		if i = s.digits(start); i == start {
			return 0, s.unexpected(i)
		}
	}
	if i < len(s.b) && (s.b[i] == 'e' || s.b[i] == 'E') {
		i++
		if i < len(s.b) && (s.b[i] == '+' || s.b[i] == '-') {
			i++
		}
		start = i
		if i = s.digits(i); i == start {
			return 0, s.unexpected(i)
		}
	}
	return i, nil
}

func (s *jsonScanner) digits(i int) int {
	for i < len(s.b) && isDigit(s.b[i]) {
		i++
	}
	return i
}

func (s *jsonScanner) literal(i int, word string) (int, error) {
	if !bytes.HasPrefix(s.b[i:], []byte(word)) {
		return 0, s.unexpected(i)
	}
	return i + len(word), nil
}

func (s *jsonScanner) unexpected(i int) error {
	if i >= len(s.b) {
		return errors.New("it is cut off")
	}
	return fmt.Errorf("it is malformed at byte %d", i)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// The functions below read JSON that checkJSON has passed.

// skipJSON returns where the checked value at i ends.
func skipJSON(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = skipJSONString(b, i) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i // The end of what holds a number or a literal.
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

func skipJSONString(b []byte, i int) int {
	quote := i
	for i++; ; {
		if quote < i {
			quote = i + bytes.IndexByte(b[i:], '"')
		}
		escape := bytes.IndexByte(b[i:quote], '\\')
		if escape < 0 {
			return quote + 1
		}
		i += escape + 2
	}
}

func skipJSONSpace(b []byte, i int) int {
	for i < len(b) && isJSONSpace(b[i]) {
		i++
	}
	return i
}

// eachMember calls f with the members of a checked object that starts at b[0].
func eachMember(b []byte, f func(key string, value []byte)) {
	for i := skipJSONSpace(b, 1); b[i] != '}'; {
		end := skipJSONString(b, i)
		key := unquoteJSON(b[i:end])
		i = skipJSONSpace(b, skipJSONSpace(b, end)+1)
		end = skipJSON(b, i)
		f(key, b[i:end])
		if i = skipJSONSpace(b, end); b[i] == ',' {
			i = skipJSONSpace(b, i+1)
		}
	}
}

// eachItem calls f with the items of a checked array that starts at b[0].
func eachItem(b []byte, f func(i int, value []byte)) {
	n := 0
	for i := skipJSONSpace(b, 1); b[i] != ']'; n++ {
		end := skipJSON(b, i)
		f(n, b[i:end])
		if i = skipJSONSpace(b, end); b[i] == ',' {
			i = skipJSONSpace(b, i+1)
		}
	}
}

// unquoteJSON returns the text of a checked JSON string.
func unquoteJSON(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1])
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return ""
	}
	return s
}
