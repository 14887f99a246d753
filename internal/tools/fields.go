package tools

import (
	"reflect"
	"strings"
)

// field is one key of a struct as encoding/json sees it.
type field struct {
	name         string
	typ          reflect.Type
	tag          reflect.StructTag
	tagged       bool
	omit, quoted bool
	// depth counts the embedded structs around the field, index the fields before it.
	depth, index int
}

// fields lists the keys of a struct in the order of their fields, embedded structs in their place. Of several fields with one
// name the shallowest wins, then the one with a tag; if that does not decide, encoding/json silently drops all, so it is a fault.
func (d *deriver) fields(t reflect.Type, at string) []field {
	all := d.collect(nil, t, at, 0, map[reflect.Type]bool{})
	best := map[string]field{}
	for _, f := range all {
		if other, ok := best[f.name]; !ok || f.beats(other) {
			best[f.name] = f
		}
	}
	kept, ambiguous := []field{}, map[string]bool{}
	for _, f := range all {
		winner := best[f.name]
		switch {
		case f.index == winner.index:
			kept = append(kept, f)
		case !winner.beats(f) && !ambiguous[f.name]:
			ambiguous[f.name] = true
			d.fault(at, "two fields are named %s", f.name)
		}
	}
	return kept
}

// beats reports whether f hides other.
func (f field) beats(other field) bool {
	return f.depth < other.depth || f.depth == other.depth && f.tagged && !other.tagged
}

func (d *deriver) collect(all []field, t reflect.Type, at string, depth int, inside map[reflect.Type]bool) []field {
	if inside[t] {
		return all
	}
	inside[t] = true
	defer delete(inside, t)
	for sf := range t.Fields() {
		tag := sf.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if sf.Anonymous && name == "" {
			if inner, ok := embedded(sf.Type); ok {
				if sf.Type.Kind() == reflect.Pointer && !sf.IsExported() && !d.output {
					d.fault(at, "an embedded pointer to the unexported %s cannot be filled", inner)
				}
				all = d.collect(all, inner, at, depth+1, inside)
				continue
			}
		}
		if !sf.IsExported() {
			continue
		}
		f := field{name: name, typ: sf.Type, tag: sf.Tag, tagged: name != "", depth: depth, index: len(all)}
		if name == "" {
			f.name = sf.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			f.omit = f.omit || option == "omitempty" || option == "omitzero"
			f.quoted = f.quoted || option == "string"
		}
		all = append(all, f)
	}
	return all
}

// embedded returns the struct whose fields are promoted by embedding t.
func embedded(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t, t.Kind() == reflect.Struct
}
