package tools

import "unicode/utf8"

// fewTokens is how many tokens a flat value has room for without an allocation: enough for what most calls take and give.
const fewTokens = 16

// maxTokens bounds the tokens of a flat value. Larger ones take less memory as what parse makes of them.
const maxTokens = 1024

// maxMembers bounds the members of one object in a flat value, which are sorted and looked up one by one. Larger ones are left to
// parse, whose maps do not slow down.
const maxMembers = 32

// flat is a JSON value in the form that costs least: a list of tokens that say where the texts and numbers stand, where parse makes
// maps and copies. It holds nothing that is wrong or unusual: then ok is not set, and parse says what it is.
type flat struct {
	parser
	ok bool
	// n is how many tokens there are. The first are in few and the others in more: a slice of few would put all on the heap.
	n    int
	few  [fewTokens]token
	more []token
	// unescaped are the texts that stand in raw with escapes.
	unescaped []byte
}

// token is one value. The members of an object are linked in the order of their keys, those of an array in their own.
type token struct {
	kind byte // What it begins with: { [ " t f n, or 0 for a number.
	key  span
	text span
	// first is the first member and next the next one in the value around it, 0 for none: token 0 is in no other.
	first, next int
}

// span is a part of raw or, if it begins behind the end of raw, of unescaped, which is thought to follow there.
type span struct{ from, to int }

// read reads one JSON value within the bounds. f is new.
func (f *flat) read(raw []byte, depth int) {
	f.parser = parser{raw: raw, depth: depth}
	if f.value(0) {
		f.space()
		f.ok = f.at == len(raw)
	}
}

// token is good until the next is added.
func (f *flat) token(i int) *token {
	if i < fewTokens {
		return &f.few[i]
	}
	return &f.more[i-fewTokens]
}

// add adds a token, if there may be one more.
func (f *flat) add(kind byte) bool {
	switch {
	case f.n < fewTokens:
		f.few[f.n].kind = kind
	case f.n < maxTokens:
		f.more = append(f.more, token{kind: kind})
	default:
		return false
	}
	f.n++
	return true
}

// bytes are not to be changed.
func (f *flat) bytes(s span) []byte {
	if n := len(f.raw); s.from >= n {
		return f.unescaped[s.from-n : s.to-n]
	}
	return f.raw[s.from:s.to]
}

// value appends the token of a value and those of what is in it.
func (f *flat) value(depth int) bool {
	kind := f.peek() // Moves to where the value begins.
	i, start := f.n, f.at
	if !f.add(kind) {
		return false
	}
	var err error
	switch kind {
	case '{':
		return f.object(i, depth)
	case '[':
		return f.array(i, depth)
	case '"':
		text, ok := f.text()
		f.token(i).text = text
		return ok
	case 't':
		err = f.word("true")
	case 'f':
		err = f.word("false")
	case 'n':
		err = f.word("null")
	default:
		f.token(i).kind = 0
		err = f.skipNumber()
	}
	f.token(i).text = span{start, f.at}
	return err == nil
}

func (f *flat) object(i, depth int) bool {
	if depth == f.depth {
		return false
	}
	f.at++
	if f.peek() == '}' {
		f.at++
		return true
	}
	last := 0
	for range maxMembers {
		n := f.n
		if !f.member(depth) {
			return false
		}
		if last == 0 || string(f.bytes(f.token(last).key)) < string(f.bytes(f.token(n).key)) {
			f.link(i, last, n)
			last = n
		} else if !f.insert(i, n) {
			return false
		}
		if done, err := f.next('}'); done || err != nil {
			return err == nil
		}
	}
	return false
}

func (f *flat) member(depth int) bool {
	if f.peek() != '"' {
		return false
	}
	key, ok := f.text()
	if !ok || f.peek() != ':' {
		return false
	}
	f.at++
	n := f.n
	if !f.value(depth + 1) {
		return false
	}
	f.token(n).key = key
	return true
}

// link puts member n behind the one before it, 0 if it is to be the first of i.
func (f *flat) link(i, before, n int) {
	place := &f.token(before).next
	if before == 0 {
		place = &f.token(i).first
	}
	f.token(n).next = *place
	*place = n
}

// insert links a member of i whose key is not above all others. It reports false if the key is there already.
func (f *flat) insert(i, n int) bool {
	key, before := f.bytes(f.token(n).key), 0
	for m := f.token(i).first; m != 0; m = f.token(m).next {
		if other := f.bytes(f.token(m).key); string(other) == string(key) {
			return false
		} else if string(other) > string(key) {
			break
		}
		before = m
	}
	f.link(i, before, n)
	return true
}

func (f *flat) array(i, depth int) bool {
	if depth == f.depth {
		return false
	}
	f.at++
	if f.peek() == ']' {
		f.at++
		return true
	}
	for last := 0; ; {
		n := f.n
		if !f.value(depth + 1) {
			return false
		}
		f.link(i, last, n)
		last = n
		if done, err := f.next(']'); done || err != nil {
			return err == nil
		}
	}
}

func (f *flat) text() (span, bool) {
	start := f.at
	plain, err := f.skipText()
	if err != nil {
		return span{}, false
	}
	if inner := (span{start + 1, f.at - 1}); plain && utf8.Valid(f.bytes(inner)) {
		return inner, true
	}
	from := len(f.unescaped)
	dst, ok := appendUnescaped(f.unescaped, f.raw[start+1:f.at-1])
	if !ok {
		s, err := unquote(f.raw[start:f.at], false)
		if err != nil {
			return span{}, false
		}
		dst = append(dst[:from], s...)
	}
	f.unescaped = dst
	return span{len(f.raw) + from, len(f.raw) + len(dst)}, true
}

// append appends the canonical form of value i.
func (f *flat) append(dst []byte, i int) []byte {
	t := f.token(i)
	switch t.kind {
	case '{', '[':
		dst = append(dst, t.kind)
		for m := t.first; m != 0; m = f.token(m).next {
			if m != t.first {
				dst = append(dst, ',')
			}
			if t.kind == '{' {
				dst = append(f.appendText(dst, f.token(m).key), ':')
			}
			dst = f.append(dst, m)
		}
		return append(dst, t.kind+2) // The other bracket.
	case '"':
		return f.appendText(dst, t.text)
	}
	return append(dst, f.bytes(t.text)...)
}

func (f *flat) appendText(dst []byte, s span) []byte {
	if s.from < len(f.raw) { // It has nothing to escape.
		return append(append(append(dst, '"'), f.bytes(s)...), '"')
	}
	return appendEscaped(dst, f.bytes(s))
}
