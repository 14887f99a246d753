package tools

import "strings"

// unsupported reports the keywords that no strict provider takes and that cannot be dropped without changing what they mean to
// the model.
func (w *strictness) unsupported(n map[string]any, path string) {
	for _, k := range [...]struct{ keyword, fix string }{
		{"allOf", "merge its parts into one schema"},
		{"oneOf", "use anyOf"},
		{"not", "say what is allowed instead"},
		{"if", "use anyOf"},
		{"patternProperties", "list the properties"},
		{"propertyNames", "list the properties"},
		{"unevaluatedProperties", "use additionalProperties: false"},
		{"dependentRequired", "use anyOf"},
		{"dependentSchemas", "use anyOf"},
		{"prefixItems", "use an object with a property for each item"},
		{"contains", "say it in the description"},
		{"unevaluatedItems", "use items"},
		{"$dynamicRef", "use $ref"},
		{"$anchor", "use $defs"},
		{"$dynamicAnchor", "use $defs"},
	} {
		if _, ok := n[k.keyword]; ok {
			w.fault(path, "uses "+k.keyword, k.fix)
		}
	}
	if _, ok := n["$id"]; ok && path != "$" {
		w.fault(path, "uses $id", "use $defs")
	}
}

// describe moves the keywords that only bound a value into the description, where a model can still read them.
func (w *strictness) describe(n map[string]any) {
	var notes []string
	for _, keyword := range [...]string{
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
		"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "contentEncoding", "contentMediaType", "default",
	} {
		if v, ok := n[keyword]; ok {
			notes = append(notes, keyword+": "+string(appendValue(nil, v)))
			delete(n, keyword)
		}
	}
	if format, ok := n["format"].(string); ok && !knownFormat(format) {
		notes = append(notes, "format: "+format)
		delete(n, "format")
	}
	for _, keyword := range [...]string{"$schema", "$id", "$comment", "title", "examples", "deprecated", "readOnly", "writeOnly"} {
		if _, ok := n[keyword]; ok {
			delete(n, keyword)
			w.changed = true
		}
	}
	if len(notes) == 0 {
		return
	}
	w.changed = true
	text := "(" + strings.Join(notes, ", ") + ")"
	if had, ok := n["description"].(string); ok && had != "" {
		text = had + " " + text
	}
	n["description"] = text
}

// knownFormat reports whether strict providers know a format.
func knownFormat(format string) bool {
	switch format {
	case "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid":
		return true
	}
	return false
}
