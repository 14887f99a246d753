package tools

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// appendUnescaped appends what stands between the quotes of a JSON string. It reports false for what is rare or wrong: surrogates,
// bytes that are not UTF-8, escapes that there are not.
func appendUnescaped(dst, inner []byte) ([]byte, bool) {
	if !utf8.Valid(inner) {
		return dst, false
	}
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			return append(dst, inner...), true
		}
		dst = append(dst, inner[:i]...)
		c := inner[i+1]
		inner = inner[i+2:]
		switch c {
		case '"', '\\', '/':
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, ok := hexRune(inner)
			if !ok {
				return dst, false
			}
			dst, inner = utf8.AppendRune(dst, r), inner[4:]
			continue
		default:
			return dst, false
		}
		dst = append(dst, c)
	}
}

// hexRune reads the four digits of an escape that stands for one character alone.
func hexRune(digits []byte) (rune, bool) {
	if len(digits) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range digits[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, !utf16.IsSurrogate(r)
}
