package llm

import (
	"encoding/json"
	"slices"
)

// dialect is the part of JSON Schema that a provider enforces. A schema outside of it is sent all the same, as a description
// that the model usually keeps to; asking to enforce it would be refused.
type dialect struct {
	keywords []string
	formats  []string
	// arrayBounds is whether minItems may be more than 1.
	arrayBounds bool
}

func openAIDialect() dialect {
	return dialect{
		keywords: []string{
			"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
			"title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
			"multipleOf", "minItems", "maxItems",
		},
		formats:     []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"},
		arrayBounds: true,
	}
}

func anthropicDialect() dialect {
	return dialect{
		keywords: []string{
			"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "title", "description",
			"default", "format", "minItems",
		},
		formats: []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
	}
}

// fits reports whether the schema of an object can be enforced, and how many of its values are of more than one type, which
// providers count.
func (d dialect) fits(schema []byte) (unions int, ok bool) {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil || root["type"] != "object" || root["anyOf"] != nil {
		return 0, false
	}
	return d.node(root)
}

func (d dialect) node(n map[string]any) (unions int, ok bool) {
	for k := range n {
		if !slices.Contains(d.keywords, k) {
			return 0, false
		}
	}
	if f, has := n["format"]; has {
		if s, isString := f.(string); !isString || !slices.Contains(d.formats, s) {
			return 0, false
		}
	}
	if v, has := n["minItems"].(float64); has && v > 1 && !d.arrayBounds {
		return 0, false
	}
	if takesObject(n) && !closed(n) {
		return 0, false
	}
	if _, several := n["type"].([]any); several || n["anyOf"] != nil {
		unions++
	}
	for _, child := range children(n) {
		more, fits := d.value(child)
		if !fits {
			return 0, false
		}
		unions += more
	}
	return unions, true
}

func (d dialect) value(v any) (unions int, ok bool) {
	n, isNode := v.(map[string]any)
	if !isNode {
		return 0, false
	}
	return d.node(n)
}

// children are the schemas right below n.
func children(n map[string]any) []any {
	var out []any
	for _, k := range []string{"properties", "$defs"} {
		if m, ok := n[k].(map[string]any); ok {
			for _, v := range m {
				out = append(out, v)
			}
		}
	}
	if items, ok := n["items"]; ok {
		out = append(out, items)
	}
	if either, ok := n["anyOf"].([]any); ok {
		out = append(out, either...)
	}
	return out
}

func takesObject(n map[string]any) bool {
	if n["properties"] != nil || n["additionalProperties"] != nil {
		return true
	}
	switch t := n["type"].(type) {
	case string:
		return t == "object"
	case []any:
		return slices.Contains(t, any("object"))
	}
	return false
}

// closed reports whether an object takes no other keys and needs each of its own.
func closed(n map[string]any) bool {
	if n["additionalProperties"] != false {
		return false
	}
	props, _ := n["properties"].(map[string]any)
	required, _ := n["required"].([]any)
	for name := range props {
		if !slices.Contains(required, any(name)) {
			return false
		}
	}
	return len(required) == len(props)
}
