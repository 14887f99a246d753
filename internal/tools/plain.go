package tools

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// plainStruct fills a struct whose fields are all texts, numbers and truth values from arguments that are parsed already. Most tools
// take no others, and encoding/json would parse the arguments once more. What is not quite plain is left to it.
type plainStruct map[string]int // field by its name in JSON

// plainStructOf returns nil for a type that is to be decoded by encoding/json.
func plainStructOf(t reflect.Type) plainStruct {
	var d deriver // Of an input.
	if t.Kind() != reflect.Struct || hasOwnJSON(t, &d) {
		return nil
	}
	p := make(plainStruct, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" && options == "" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, twice := p[name]; twice || f.Anonymous || !isPlainKind(f.Type, &d) || strings.Contains(options, "string") || !isPlainName(name) {
			return nil
		}
		p[name] = i
	}
	return p
}

// hasOwnJSON reports whether a type has methods by which encoding/json reads it, or writes it.
func hasOwnJSON(t reflect.Type, d *deriver) bool {
	text, _ := d.text(t)
	return text || d.custom(t)
}

// isPlainKind reports whether encoding/json reads a type, or writes it if d is of an output, by nothing but its kind.
func isPlainKind(t reflect.Type, d *deriver) bool {
	if t == reflect.TypeFor[json.Number]() || hasOwnJSON(t, d) {
		return false
	}
	switch t.Kind() { //nolint:exhaustive // All others are not plain.
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

// isPlainName reports whether encoding/json takes a name as it stands in a tag.
func isPlainName(name string) bool {
	return strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// fill sets the fields. It reports false for what encoding/json has to decode or to refuse; v is of no use then.
func (p plainStruct) fill(v reflect.Value, args map[string]any) bool {
	for name, arg := range args {
		i, ok := p[name]
		if !ok || !setPlain(v.Field(i), arg) {
			return false
		}
	}
	return true
}

// fillFlat is fill for arguments that are flat; they are an object.
func (p plainStruct) fillFlat(v reflect.Value, f *flat) bool {
	for m := f.token(0).first; m != 0; m = f.token(m).next {
		i, ok := p[string(f.bytes(f.token(m).key))]
		if !ok || !f.set(v.Field(i), f.token(m)) {
			return false
		}
	}
	return true
}

func (f *flat) set(field reflect.Value, t *token) bool {
	switch t.kind {
	case '"':
		if field.Kind() != reflect.String {
			return false
		}
		field.SetString(string(f.bytes(t.text)))
		return true
	case 't', 'f':
		if field.Kind() != reflect.Bool {
			return false
		}
		field.SetBool(t.kind == 't')
		return true
	case 0:
		return setNumber(field, string(f.bytes(t.text)))
	}
	return false
}

func setPlain(field reflect.Value, arg any) bool {
	switch arg := arg.(type) {
	case string:
		if field.Kind() != reflect.String {
			return false
		}
		field.SetString(arg)
		return true
	case bool:
		if field.Kind() != reflect.Bool {
			return false
		}
		field.SetBool(arg)
		return true
	case json.Number:
		return setNumber(field, string(arg))
	}
	return false
}

func setNumber(field reflect.Value, number string) bool {
	switch {
	case field.CanInt():
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || field.OverflowInt(n) {
			return false
		}
		field.SetInt(n)
	case field.CanUint():
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || field.OverflowUint(n) {
			return false
		}
		field.SetUint(n)
	case field.CanFloat():
		n, err := strconv.ParseFloat(number, field.Type().Bits())
		if err != nil || field.OverflowFloat(n) {
			return false
		}
		field.SetFloat(n)
	default:
		return false
	}
	return true
}
