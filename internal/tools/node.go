package tools

import "slices"

// node is a derived schema. It is written by hand to keep the order of the fields: a model reads a schema from top to bottom.
type node struct {
	types       []string
	description string
	format      string
	encoding    string
	length      string
	items       *node
	properties  []property
	required    []string
	closed      bool
	values      *node
}

type property struct {
	name string
	node *node
}

func typed(t string) *node { return &node{types: []string{t}} }

// any reports whether the node allows every value.
func (n *node) any() bool { return len(n.types) == 0 }

func (n *node) scalar() bool {
	return slices.ContainsFunc(n.types, func(t string) bool {
		return t == "string" || t == "number" || t == "integer" || t == "boolean"
	})
}

// asString is the node of a value that is written inside a string.
func (n *node) asString() *node {
	s := typed("string")
	if slices.Contains(n.types, "null") {
		return s.orNull()
	}
	return s
}

func (n *node) orNull() *node {
	if !n.any() && !slices.Contains(n.types, "null") {
		n.types = append(n.types, "null")
	}
	return n
}

func (n *node) append(b []byte) []byte {
	w := &keywords{b: append(b, '{')}
	switch len(n.types) {
	case 0:
	case 1:
		w.text("type", n.types[0])
	default:
		w.texts("type", n.types)
	}
	w.text("description", n.description)
	w.text("format", n.format)
	w.text("contentEncoding", n.encoding)
	w.raw("minItems", n.length)
	w.raw("maxItems", n.length)
	if n.items != nil {
		w.key("items")
		w.b = n.items.append(w.b)
	}
	if n.closed {
		n.appendProperties(w)
	}
	if n.values != nil {
		w.key("additionalProperties")
		w.b = n.values.append(w.b)
	}
	return append(w.b, '}')
}

func (n *node) appendProperties(w *keywords) {
	w.key("properties")
	w.b = append(w.b, '{')
	for i, p := range n.properties {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = append(appendString(w.b, p.name), ':')
		w.b = p.node.append(w.b)
	}
	w.b = append(w.b, '}')
	w.texts("required", n.required)
	w.raw("additionalProperties", "false")
}

// keywords writes the keywords of one schema, leaving out the empty ones.
type keywords struct{ b []byte }

func (w *keywords) key(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(appendString(w.b, name), ':')
}

func (w *keywords) text(name, value string) {
	if value != "" {
		w.key(name)
		w.b = appendString(w.b, value)
	}
}

func (w *keywords) raw(name, value string) {
	if value != "" {
		w.key(name)
		w.b = append(w.b, value...)
	}
}

func (w *keywords) texts(name string, values []string) {
	w.key(name)
	w.b = append(w.b, '[')
	for i, v := range values {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = appendString(w.b, v)
	}
	w.b = append(w.b, ']')
}
