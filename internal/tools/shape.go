package tools

import (
	"encoding/json"
	"slices"
)

// shape is the plain part of a JSON Schema: types, properties, items. Most schemas of tools say nothing else, and a value that fits
// can be told at a glance, where the validator makes a dozen allocations. What does not fit, or may not, is the validator's matter.
type shape struct {
	kind string
	// null is set when null fits beside the kind. What is derived from Go types says so of pointers, lists and maps.
	null       bool
	properties map[string]*shape
	required   []string
	closed     bool
	items      *shape
}

// shapeOf returns the shape of a schema that says nothing but what a shape holds, else nil. Null must not fit a whole value.
func shapeOf(doc any) *shape {
	if s := partOf(doc); s != nil && !s.null {
		return s
	}
	return nil
}

// partOf is shapeOf for a property or an item.
func partOf(doc any) *shape {
	m, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	s := &shape{}
	for key, v := range m {
		ok := true
		switch key {
		case "$schema", "title", "description", "default", "examples":
		case "type":
			ok = s.takeType(v)
		case "properties":
			ok = s.takeProperties(v)
		case "required":
			ok = s.takeRequired(v)
		case "additionalProperties":
			ok = v == false
			s.closed = true
		case "items":
			s.items = partOf(v)
			ok = s.items != nil
		default:
			return nil
		}
		if !ok {
			return nil
		}
	}
	return s
}

func (s *shape) takeType(v any) bool {
	if list, ok := v.([]any); ok && len(list) == 2 && slices.Contains(list, any("null")) {
		s.null = true
		v = list[0]
		if v == "null" {
			v = list[1]
		}
	}
	kind, ok := v.(string)
	s.kind = kind
	return ok
}

func (s *shape) takeProperties(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	s.properties = make(map[string]*shape, len(m))
	for name, sub := range m {
		if s.properties[name] = partOf(sub); s.properties[name] == nil {
			return false
		}
	}
	return true
}

func (s *shape) takeRequired(v any) bool {
	list, ok := v.([]any)
	if !ok {
		return false
	}
	for _, item := range list {
		name, ok := item.(string)
		if !ok {
			return false
		}
		s.required = append(s.required, name)
	}
	return true
}

// accepts reports whether a value that parse returned certainly fits.
func (s *shape) accepts(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return (s.kind == "object" || s.kind == "") && s.acceptsObject(v)
	case []any:
		return (s.kind == "array" || s.kind == "") && (s.items == nil || !slices.ContainsFunc(v, func(item any) bool { return !s.items.accepts(item) }))
	case string:
		return s.kind == "string" || s.kind == ""
	case json.Number:
		return s.kind == "number" || s.kind == "" || s.kind == "integer" && isPlainInteger(string(v))
	case bool:
		return s.kind == "boolean" || s.kind == ""
	case nil:
		return s.kind == "null" || s.kind == "" || s.null
	}
	return false
}

func (s *shape) acceptsObject(m map[string]any) bool {
	for _, name := range s.required {
		if _, ok := m[name]; !ok {
			return false
		}
	}
	for name, v := range m {
		if sub := s.properties[name]; sub != nil {
			if !sub.accepts(v) {
				return false
			}
		} else if s.closed {
			return false
		}
	}
	return true
}

// acceptsFlat is accepts for value i of a flat one.
func (s *shape) acceptsFlat(f *flat, i int) bool {
	t := f.token(i)
	switch t.kind {
	case '{':
		return (s.kind == "object" || s.kind == "") && s.acceptsMembers(f, t)
	case '[':
		if s.kind != "array" && s.kind != "" {
			return false
		}
		for m := t.first; m != 0 && s.items != nil; m = f.token(m).next {
			if !s.items.acceptsFlat(f, m) {
				return false
			}
		}
		return true
	case '"':
		return s.kind == "string" || s.kind == ""
	case 't', 'f':
		return s.kind == "boolean" || s.kind == ""
	case 'n':
		return s.kind == "null" || s.kind == "" || s.null
	}
	return s.kind == "number" || s.kind == "" || s.kind == "integer" && isPlainInteger(f.bytes(t.text))
}

func (s *shape) acceptsMembers(f *flat, t *token) bool {
	for _, name := range s.required {
		m := t.first
		for m != 0 && string(f.bytes(f.token(m).key)) != name {
			m = f.token(m).next
		}
		if m == 0 {
			return false
		}
	}
	for m := t.first; m != 0; m = f.token(m).next {
		if sub := s.properties[string(f.bytes(f.token(m).key))]; sub != nil {
			if !sub.acceptsFlat(f, m) {
				return false
			}
		} else if s.closed {
			return false
		}
	}
	return true
}

// isPlainInteger reports whether a number is written as an integer. Others may be one too, as 1.0 is.
func isPlainInteger[T string | []byte](n T) bool {
	for i := range len(n) {
		if c := n[i]; c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}
