package tools

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// plainOutput writes a struct whose fields are all texts, numbers and truth values as canonical JSON. It writes what parsing and
// sorting the JSON of encoding/json would give, and what it writes fits the schema that is derived from the type. What is not quite
// plain is left to encoding/json; nil leaves all to it.
type plainOutput []plainField

// plainField is a field that is written. They are in the order of their names.
type plainField struct {
	index int
	name  string
	key   string // The name as JSON with its colon.
	omit  bool
}

// plainOutputOf returns nil for a type that is to be written by encoding/json.
func plainOutputOf(t reflect.Type) plainOutput {
	d := deriver{output: true}
	if t.Kind() != reflect.Struct || hasOwnJSON(t, &d) {
		return nil
	}
	p := make(plainOutput, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" {
			name = f.Name
		}
		if f.Anonymous || !isPlainKind(f.Type, &d) || options != "" && options != "omitempty" || !isPlainName(name) {
			return nil
		}
		p = append(p, plainField{index: i, name: name, key: `"` + name + `":`, omit: options != ""})
	}
	slices.SortFunc(p, func(a, b plainField) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(p); i++ {
		if p[i].name == p[i-1].name {
			return nil
		}
	}
	return p
}

// encode returns nil for a value that encoding/json has to write or to refuse.
func (p plainOutput) encode(value any) []byte {
	if p == nil {
		return nil
	}
	v := reflect.ValueOf(value)
	dst := append(make([]byte, 0, p.size(v)), '{')
	for i := range p {
		f := &p[i]
		field := v.Field(f.index)
		if f.omit && field.IsZero() {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		var ok bool
		if dst, ok = appendPlain(append(dst, f.key...), field); !ok {
			return nil
		}
	}
	return append(dst, '}')
}

// size is about what the value has in JSON.
func (p plainOutput) size(v reflect.Value) int {
	n := 2
	for i := range p {
		n += len(p[i].key) + 1
		switch field := v.Field(p[i].index); field.Kind() { //nolint:exhaustive // All others are numbers.
		case reflect.String:
			n += field.Len() + 2
		case reflect.Bool:
			n += len("false")
		default:
			n += 8 // Most are small.
		}
	}
	return n
}

func appendPlain(dst []byte, v reflect.Value) ([]byte, bool) {
	switch {
	case v.Kind() == reflect.String:
		s := v.String()
		if !utf8.ValidString(s) {
			return dst, false
		}
		return appendEscaped(dst, s), true
	case v.Kind() == reflect.Bool:
		return strconv.AppendBool(dst, v.Bool()), true
	case v.CanInt():
		return strconv.AppendInt(dst, v.Int(), 10), true
	case v.CanUint():
		return strconv.AppendUint(dst, v.Uint(), 10), true
	case v.CanFloat():
		return appendFloat(dst, v.Float(), v.Type().Bits())
	}
	return dst, false
}

// appendFloat writes a number as encoding/json does: with an exponent if it is very small or large, and none like e-09.
func appendFloat(dst []byte, f float64, bits int) ([]byte, bool) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return dst, false
	}
	format, low, high := byte('f'), 1e-6, 1e21
	if bits == 32 {
		low, high = float64(float32(low)), float64(float32(high))
	}
	if abs := math.Abs(f); abs != 0 && (abs < low || abs >= high) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, bits)
	if n := len(dst); format == 'e' && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst, true
}
