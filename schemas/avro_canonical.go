package schemas

import "strconv"

// canonical returns the Parsing Canonical Form of the schema, as the Avro specification has it: full names, no attribute
// that does not matter to the bytes, each named type defined where it first stands. goavro's form is not that for types
// that carry attributes of their own or names in nested namespaces, so its fingerprints fit nobody else's.
func (t *avroType) canonical() string {
	e := canonicalEmitter{done: make(map[string]bool)}
	e.emit(t)
	return string(e.out)
}

// goavroPrefix is put before each type's name in the text that goavro is given, so that no name of a writer's can meet
// one of goavro's own (its logical types are named like int.date) or be moved into an enclosing namespace.
const goavroPrefix = "x."

// goavroText returns the schema as goavro is given it: the canonical form with prefixed names. So none of goavro's
// readings of logical types, defaults, aliases and namespaces is ever used.
func (t *avroType) goavroText() string {
	e := canonicalEmitter{done: make(map[string]bool), prefix: goavroPrefix}
	e.emit(t)
	return string(e.out)
}

// branchKey is the key under which goavro holds a value of t in a union, and what tells the branches of a union apart.
func (t *avroType) branchKey() string {
	if t.name != "" {
		return goavroPrefix + t.name
	}
	return t.kind
}

// fingerprint is the CRC-64-AVRO of the canonical form.
func (t *avroType) fingerprint() uint64 { return crc64Avro([]byte(t.canonical())) }

type canonicalEmitter struct {
	out    []byte
	done   map[string]bool
	prefix string
}

func (e *canonicalEmitter) emit(t *avroType) {
	switch {
	case t.kind == "union":
		e.emitUnion(t)
	case t.kind == "array":
		e.text(`{"type":"array","items":`)
		e.emit(t.items)
		e.text("}")
	case t.kind == "map":
		e.text(`{"type":"map","values":`)
		e.emit(t.items)
		e.text("}")
	case t.name == "":
		e.quoted(t.kind)
	case e.done[t.name]:
		e.quoted(e.prefix + t.name)
	default:
		e.done[t.name] = true
		e.emitNamed(t)
	}
}

func (e *canonicalEmitter) emitUnion(t *avroType) {
	e.text("[")
	for i, b := range t.branches {
		if i > 0 {
			e.text(",")
		}
		e.emit(b)
	}
	e.text("]")
}

func (e *canonicalEmitter) emitNamed(t *avroType) {
	e.text(`{"name":`)
	e.quoted(e.prefix + t.name)
	e.text(`,"type":`)
	e.quoted(t.kind)
	switch t.kind {
	case "record":
		e.text(`,"fields":[`)
		for i := range t.fields {
			if i > 0 {
				e.text(",")
			}
			e.text(`{"name":`)
			e.quoted(t.fields[i].name)
			e.text(`,"type":`)
			e.emit(t.fields[i].typ)
			e.text("}")
		}
		e.text("]")
	case "enum":
		e.text(`,"symbols":[`)
		for i, s := range t.symbols {
			if i > 0 {
				e.text(",")
			}
			e.quoted(s)
		}
		e.text("]")
	case "fixed":
		e.text(`,"size":`)
		e.out = strconv.AppendInt(e.out, int64(t.size), 10)
	}
	e.text("}")
}

func (e *canonicalEmitter) text(s string) { e.out = append(e.out, s...) }

// quoted writes a name; names hold nothing that JSON escapes.
func (e *canonicalEmitter) quoted(s string) {
	e.out = append(e.out, '"')
	e.out = append(e.out, s...)
	e.out = append(e.out, '"')
}

// crc64Avro is the Rabin fingerprint of the Avro specification. It runs once per schema, so it needs no table.
func crc64Avro(b []byte) uint64 {
	const empty = 0xc15d213aa4d7a795
	fp := uint64(empty)
	for _, c := range b {
		fp ^= uint64(c)
		for range 8 {
			fp = fp>>1 ^ empty&-(fp&1)
		}
	}
	return fp
}
