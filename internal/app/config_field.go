package app

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// configField is one field of the settings or of the manifest, read from its struct tags: env names the setting, yaml the
// key of the manifest, and both share default, min, max, oneof, desc and required. So what is checked, what the
// documentation says and what the JSON Schema says cannot differ.
type configField struct {
	index    []int
	typ      reflect.Type
	tag      reflect.StructTag
	env      string // without the prefix
	key      string // in the manifest
	fallback string // the default, as text
	shown    string // the default, where words say it better
	desc     string
	section  string
	min, max string
	oneOf    []string
	required bool
	isPath   bool
}

// settingFields lists the settings in the order of the struct, nested structs in place.
func settingFields(t reflect.Type) []configField {
	var fields []configField
	for sf := range t.Fields() {
		f := newConfigField(sf)
		if f.env != "" {
			fields = append(fields, f)
			continue
		}
		if sf.Type.Kind() != reflect.Struct {
			continue
		}
		for i, inner := range settingFields(sf.Type) {
			inner.index = append(slices.Clone(sf.Index), inner.index...)
			if i == 0 {
				inner.section = cmp.Or(inner.section, f.section)
			}
			fields = append(fields, inner)
		}
	}
	return fields
}

// manifestFields lists the keys of one mapping of the manifest.
func manifestFields(t reflect.Type) []configField {
	var fields []configField
	for sf := range t.Fields() {
		if f := newConfigField(sf); f.key != "" && f.key != "-" {
			fields = append(fields, f)
		}
	}
	return fields
}

func newConfigField(sf reflect.StructField) configField {
	f := configField{
		index:    sf.Index,
		typ:      sf.Type,
		tag:      sf.Tag,
		key:      sf.Tag.Get("yaml"),
		fallback: sf.Tag.Get("default"),
		shown:    sf.Tag.Get("shown"),
		desc:     sf.Tag.Get("desc"),
		section:  sf.Tag.Get("section"),
		min:      sf.Tag.Get("min"),
		max:      sf.Tag.Get("max"),
		required: sf.Tag.Get("required") == "true",
		isPath:   sf.Tag.Get("path") == "true",
	}
	if values := sf.Tag.Get("oneof"); values != "" {
		f.oneOf = strings.Split(values, "|")
	}
	// The default of a setting stands where go-envconfig reads it.
	name, options, _ := strings.Cut(sf.Tag.Get("env"), ",")
	f.env = name
	if text, ok := strings.CutPrefix(options, "default="); ok {
		f.fallback = text
	}
	f.required = f.required || options == "required"
	f.isPath = f.isPath || strings.HasSuffix(name, "_PATH")
	return f
}

// typeName says in words what a value of the field looks like.
func (f configField) typeName() string {
	switch {
	case len(f.oneOf) > 0:
		return "one of `" + strings.Join(f.oneOf, "`, `") + "`"
	case f.isPath:
		return "path"
	case f.typ == reflect.TypeFor[time.Duration]():
		return "duration"
	case f.typ == reflect.TypeFor[ByteSize]():
		return "size"
	case f.typ == reflect.TypeFor[Secret]():
		return "secret"
	case f.typ == reflect.TypeFor[ManifestGate]():
		return "true, false or a condition"
	case f.typ == reflect.TypeFor[*ManifestRetry]():
		return "number or mapping"
	}
	return kindName(f.typ)
}

func kindName(t reflect.Type) string {
	//exhaustive:ignore // Only these kinds stand in the settings and the manifest; a test walks them all.
	switch t.Kind() {
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "mapping"
	default:
		return "text"
	}
}

// check says what is wrong with a value that has the right type.
func (f configField) check(v reflect.Value) error {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	if len(f.oneOf) > 0 && v.String() != "" && !slices.Contains(f.oneOf, v.String()) {
		return fmt.Errorf("%q is not one of %s", v.String(), strings.Join(f.oneOf, ", "))
	}
	n, isNumber := configNumber(v)
	switch {
	case !isNumber:
		return nil
	case f.min != "" && n < f.bound(f.min):
		return fmt.Errorf("%v is less than %s", v, f.min)
	case f.max != "" && n > f.bound(f.max):
		return fmt.Errorf("%v is more than %s", v, f.max)
	}
	return nil
}

func configNumber(v reflect.Value) (float64, bool) {
	switch {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanFloat():
		return v.Float(), true
	}
	return 0, false
}

// bound reads a min or max tag in the unit of the field.
func (f configField) bound(text string) float64 {
	v := reflect.New(f.typ).Elem()
	if f.typ.Kind() == reflect.Pointer {
		v = reflect.New(f.typ.Elem()).Elem()
	}
	setConfigText(v, text)
	n, _ := configNumber(v)
	return n
}

// setConfigText sets v from the text of a tag. A tag that does not fit its field is a wiring mistake.
func setConfigText(v reflect.Value, text string) {
	var err error
	switch dst := v.Addr().Interface().(type) {
	case *time.Duration:
		*dst, err = parseDuration(text)
	case *ByteSize:
		err = dst.UnmarshalText([]byte(text))
	case *int:
		*dst, err = strconv.Atoi(text)
	case *int64:
		*dst, err = strconv.ParseInt(text, 10, 64)
	case *float64:
		*dst, err = strconv.ParseFloat(text, 64)
	default:
		v.SetString(text)
	}
	if err != nil {
		panic(fmt.Sprintf("tag %q of a %s: %v", text, v.Type(), err))
	}
}
