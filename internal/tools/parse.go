package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of one JSON value; maxDepth is that of schemas, answers, and of arguments and results by default. Numbers are bounded
// because comparing one with a schema works with all its digits.
const (
	maxDepth        = 64
	maxNumberLength = 128
	maxExponent     = "400"
)

// parse reads one JSON value within the bounds: objects are map[string]any, arrays []any, numbers json.Number. It accepts what
// encoding/json accepts, in half the time; every call is parsed twice.
func parse(raw []byte) (any, error) { return parseWithin(raw, maxDepth) }

// parseWithin is parse with another bound for the depth.
func parseWithin(raw []byte, depth int) (any, error) {
	p := parser{raw: raw, depth: depth}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(raw) {
		return nil, fmt.Errorf("not valid JSON: more than one value, the next at byte %d", p.at)
	}
	return v, nil
}

// parseObject reads an object; nothing at all is the empty one, which is what models send for a tool without arguments.
func parseObject(raw []byte, depth int) (map[string]any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return map[string]any{}, nil
	}
	v, err := parseWithin(raw, depth)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("expected an object")
	}
	return m, nil
}

// parser reads raw from at on.
type parser struct {
	raw   []byte
	at    int
	depth int
}

func (p *parser) space() {
	for p.at < len(p.raw) {
		switch p.raw[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

// peek is the next byte that is not white space, 0 at the end.
func (p *parser) peek() byte {
	if p.space(); p.at < len(p.raw) {
		return p.raw[p.at]
	}
	return 0
}

func (p *parser) invalid() error {
	if p.at >= len(p.raw) {
		return errors.New("not valid JSON: it ends too early")
	}
	return fmt.Errorf("not valid JSON at byte %d", p.at)
}

func (p *parser) value(depth int) (any, error) {
	switch p.peek() {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		return p.text()
	case 't':
		return true, p.word("true")
	case 'f':
		return false, p.word("false")
	case 'n':
		return nil, p.word("null")
	}
	return p.number()
}

func (p *parser) word(w string) error {
	if !bytes.HasPrefix(p.raw[p.at:], []byte(w)) {
		return p.invalid()
	}
	p.at += len(w)
	return nil
}

func (p *parser) object(depth int) (any, error) {
	if depth == p.depth {
		return nil, fmt.Errorf("nested more than %d deep", p.depth)
	}
	p.at++
	m := map[string]any{}
	if p.peek() == '}' {
		p.at++
		return m, nil
	}
	for {
		if p.peek() != '"' {
			return nil, p.invalid()
		}
		key, err := p.text()
		if err != nil {
			return nil, err
		}
		if p.peek() != ':' {
			return nil, p.invalid()
		}
		p.at++
		if m[key], err = p.value(depth + 1); err != nil {
			return nil, err
		}
		done, err := p.next('}')
		if done || err != nil {
			return m, err
		}
	}
}

func (p *parser) array(depth int) (any, error) {
	if depth == p.depth {
		return nil, fmt.Errorf("nested more than %d deep", p.depth)
	}
	p.at++
	list := []any{}
	if p.peek() == ']' {
		p.at++
		return list, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		done, err := p.next(']')
		if done || err != nil {
			return list, err
		}
	}
}

// next reads what follows an item: a comma, or the end.
func (p *parser) next(end byte) (done bool, err error) {
	c := p.peek()
	if c != ',' && c != end {
		return false, p.invalid()
	}
	p.at++
	return c == end, nil
}

func (p *parser) text() (string, error) {
	start := p.at
	plain, err := p.skipText()
	if err != nil {
		return "", err
	}
	return unquote(p.raw[start:p.at], plain)
}

// skipText skips a JSON string; plain says that nothing in it is escaped. What is escaped may still be escaped wrongly.
func (p *parser) skipText() (plain bool, err error) {
	p.at++
	plain = true
	for ; p.at < len(p.raw); p.at++ {
		switch c := p.raw[p.at]; {
		case c == '"':
			p.at++
			return plain, nil
		case c == '\\':
			plain = false
			p.at++
		case c < 0x20:
			return false, p.invalid()
		}
	}
	return false, p.invalid()
}

// unquote decodes a JSON string; plain says that nothing in it is escaped.
func unquote(quoted []byte, plain bool) (string, error) {
	if inner := quoted[1 : len(quoted)-1]; plain && utf8.Valid(inner) {
		return string(inner), nil
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return "", fmt.Errorf("not valid JSON: %w", err)
	}
	return s, nil
}

func (p *parser) number() (any, error) {
	start := p.at
	if err := p.skipNumber(); err != nil {
		return nil, err
	}
	return json.Number(p.raw[start:p.at]), nil
}

// skipNumber skips a number within the bounds.
func (p *parser) skipNumber() error {
	start := p.at
	if p.at < len(p.raw) && p.raw[p.at] == '-' {
		p.at++
	}
	zero := p.at < len(p.raw) && p.raw[p.at] == '0'
	if n := p.digits(); n == 0 || zero && n > 1 {
		return p.invalid()
	}
	if p.at < len(p.raw) && p.raw[p.at] == '.' {
		p.at++
		if p.digits() == 0 {
			return p.invalid()
		}
	}
	exponent := ""
	if p.at < len(p.raw) && p.raw[p.at]|0x20 == 'e' {
		p.at++
		if p.at < len(p.raw) && (p.raw[p.at] == '+' || p.raw[p.at] == '-') {
			p.at++
		}
		from := p.at
		if p.digits() == 0 {
			return p.invalid()
		}
		exponent = strings.TrimLeft(string(p.raw[from:p.at]), "0")
	}
	if p.at-start > maxNumberLength {
		return fmt.Errorf("a number of more than %d characters", maxNumberLength)
	}
	if n := len(maxExponent); len(exponent) > n || len(exponent) == n && exponent > maxExponent {
		return errors.New("a number with an exponent beyond " + maxExponent)
	}
	return nil
}

// digits skips digits and counts them.
func (p *parser) digits() int {
	start := p.at
	for p.at < len(p.raw) && '0' <= p.raw[p.at] && p.raw[p.at] <= '9' {
		p.at++
	}
	return p.at - start
}
