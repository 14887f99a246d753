package tools

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// deriveInput makes the schema of a tool's arguments from a struct.
func deriveInput(t reflect.Type) ([]byte, []problem) {
	d := &deriver{seen: map[reflect.Type]bool{}}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || d.custom(t) {
		return nil, []problem{{"no input schema follows from " + t.String(), "take a struct, or give Options.Input"}}
	}
	return d.document(t)
}

// deriveOutput makes the schema of a tool's results; a type that may be anything has none.
func deriveOutput(t reflect.Type) ([]byte, []problem) {
	d := &deriver{output: true, seen: map[reflect.Type]bool{}}
	return d.document(t)
}

// deriver derives one schema. Arguments come from a model that is held to the schema, so every field is required there;
// results come from encoding/json, which leaves out what is marked so and writes null for nil.
type deriver struct {
	output bool
	seen   map[reflect.Type]bool
	faults []problem
}

func (d *deriver) document(t reflect.Type) ([]byte, []problem) {
	n := d.schema(t, "$")
	if len(d.faults) > 0 || n.any() {
		return nil, d.faults
	}
	return n.append(nil), nil
}

func (d *deriver) fault(at, format string, args ...any) {
	option := "Options.Input"
	if d.output {
		option = "Options.Output"
	}
	d.faults = append(d.faults, problem{at + ": " + fmt.Sprintf(format, args...), "change the type, or give " + option})
}

// custom reports whether the type writes or reads its own JSON, so that nothing follows from its shape.
func (d *deriver) custom(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	if d.output {
		return p.Implements(reflect.TypeFor[json.Marshaler]())
	}
	return p.Implements(reflect.TypeFor[json.Unmarshaler]())
}

// text reports whether the type is a JSON string by its own methods; sure is false when that depends on being addressable.
func (d *deriver) text(t reflect.Type) (is, sure bool) {
	p := reflect.PointerTo(t)
	if d.output {
		return p.Implements(reflect.TypeFor[encoding.TextMarshaler]()), t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
	}
	is = p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	return is, is
}

// schema is the schema of t. Its cases are those of encoding/json, in its order.
func (d *deriver) schema(t reflect.Type, at string) *node {
	if n := known(t); n != nil {
		return n
	}
	if t.Kind() == reflect.Pointer {
		return d.schema(t.Elem(), at).orNull()
	}
	if d.custom(t) {
		return &node{}
	}
	if is, sure := d.text(t); is {
		if sure {
			return typed("string")
		}
		return &node{}
	}
	switch t.Kind() {
	case reflect.Bool:
		return typed("boolean")
	case reflect.String:
		return typed("string")
	case reflect.Float32, reflect.Float64:
		return typed("number")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		// Not bounded: what does not fit is refused when it is decoded, and strict providers take no bounds.
		return typed("integer")
	case reflect.Interface:
		return &node{}
	case reflect.Slice, reflect.Array:
		return d.list(t, at)
	case reflect.Map:
		return d.mapping(t, at)
	case reflect.Struct:
		return d.object(t, at)
	case reflect.Invalid, reflect.Complex64, reflect.Complex128, reflect.Chan, reflect.Func, reflect.Pointer, reflect.UnsafePointer:
	}
	d.fault(at, "%s has no JSON form", t)
	return &node{}
}

// known are the types of the standard library whose JSON is documented.
func known(t reflect.Type) *node {
	switch t {
	case reflect.TypeFor[time.Time]():
		n := typed("string")
		n.format = "date-time"
		return n
	case reflect.TypeFor[json.Number]():
		return typed("number")
	case reflect.TypeFor[json.RawMessage]():
		return &node{}
	}
	return nil
}

func (d *deriver) list(t reflect.Type, at string) *node {
	var n *node
	if t.Kind() == reflect.Slice && d.bytes(t.Elem()) {
		n = typed("string")
		n.encoding = "base64"
	} else {
		n = typed("array")
		n.items = d.schema(t.Elem(), at+"[]")
		if t.Kind() == reflect.Array {
			n.length = strconv.Itoa(t.Len())
		}
	}
	if d.output && t.Kind() == reflect.Slice {
		return n.orNull()
	}
	return n
}

// bytes reports whether a slice of t is written as base64.
func (d *deriver) bytes(t reflect.Type) bool {
	if t.Kind() != reflect.Uint8 || d.custom(t) {
		return false
	}
	is, _ := d.text(t)
	return !is
}

func (d *deriver) mapping(t reflect.Type, at string) *node {
	n := typed("object")
	plain := t.Key().Kind() == reflect.String || t.Key().Kind() >= reflect.Int && t.Key().Kind() <= reflect.Uintptr
	if is, _ := d.text(t.Key()); !is && !plain {
		d.fault(at, "a map with keys of %s has no JSON form", t.Key())
	}
	n.values = d.schema(t.Elem(), at+".*")
	if d.output {
		return n.orNull()
	}
	return n
}

func (d *deriver) object(t reflect.Type, at string) *node {
	if d.seen[t] {
		d.fault(at, "%s contains itself", t)
		return &node{}
	}
	d.seen[t] = true
	defer delete(d.seen, t)
	n := typed("object")
	n.closed = true
	for _, f := range d.fields(t, at) {
		where := at + "." + f.name
		p := d.schema(f.typ, where)
		if f.quoted && p.scalar() {
			p = p.asString()
		}
		p.description = d.description(f, where)
		n.properties = append(n.properties, property{f.name, p})
		if !d.output || !f.omit {
			n.required = append(n.required, f.name)
		}
	}
	return n
}

func (d *deriver) description(f field, at string) string {
	tag, ok := f.tag.Lookup("jsonschema")
	if !ok {
		return ""
	}
	word, _, found := strings.Cut(tag, "=")
	if found && !strings.ContainsAny(word, " \t\n") {
		d.faults = append(d.faults, problem{
			at + ": its jsonschema tag starts with " + word + "=",
			"write nothing but the description into the tag",
		})
	}
	return tag
}
