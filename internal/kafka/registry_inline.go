package kafka

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	// maxReferences bounds how many schemas one schema may refer to, directly or not.
	maxReferences = 100
	// maxSchemaDepth bounds how deep types nest, so that no schema exhausts the stack.
	maxSchemaDepth = 200
)

var errReferencesTooLarge = errors.New("the schema and what it refers to are too large")

// inliner makes one schema of a schema and its references: where a referenced type is named first, its definition is
// written in its place.
type inliner struct {
	fetch func(sr.SchemaReference) (sr.Schema, error)
	limit int

	bytes     int
	available map[string]any  // definitions of referenced types by full name
	defined   map[string]bool // full names that the result defines so far
}

func (in *inliner) inline(schema sr.Schema) (string, error) {
	in.available, in.defined = map[string]any{}, map[string]bool{}
	in.bytes = len(schema.Schema)
	root, err := parseSchema(schema.Schema)
	if err != nil {
		return "", err
	}
	if err := in.collect(schema.References, map[string]bool{}); err != nil {
		return "", err
	}
	whole, err := in.walk(root, "", 0)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return "", fmt.Errorf("write the schema: %w", err)
	}
	return string(text), nil
}

func parseSchema(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber() // defaults must stay the numbers they are
	var schema any
	if err := dec.Decode(&schema); err != nil {
		return nil, fmt.Errorf("parse the schema: %w", err)
	}
	return schema, nil
}

// collect fetches references and theirs; one that several schemas refer to is fetched once.
func (in *inliner) collect(refs []sr.SchemaReference, seen map[string]bool) error {
	for _, ref := range refs {
		key := fmt.Sprintf("%s@%d", ref.Subject, ref.Version)
		if seen[key] {
			continue
		}
		seen[key] = true
		if len(seen) > maxReferences {
			return errReferencesTooLarge
		}
		found, err := in.fetch(ref)
		if err != nil {
			return err
		}
		if in.bytes += len(found.Schema); in.bytes > in.limit {
			return errReferencesTooLarge
		}
		definition, err := parseSchema(found.Schema)
		if err != nil {
			return err
		}
		in.offer(definition)
		if err := in.collect(found.References, seen); err != nil {
			return err
		}
	}
	return nil
}

// offer notes the definitions of a referenced schema: a named type, or a union of them.
func (in *inliner) offer(definition any) {
	switch d := definition.(type) {
	case []any:
		for _, branch := range d {
			in.offer(branch)
		}
	case map[string]any:
		if name, _ := fullName(d, ""); name != "" {
			in.available[name] = d
		}
	}
}

// walk copies a schema with every first use of a referenced type replaced by its definition, and every later one by its
// full name. ns is the namespace around it.
func (in *inliner) walk(schema any, ns string, depth int) (any, error) {
	if depth > maxSchemaDepth {
		return nil, errReferencesTooLarge
	}
	switch s := schema.(type) {
	case string:
		return in.walkName(s, ns, depth)
	case []any:
		union := make([]any, 0, len(s))
		for _, branch := range s {
			walked, err := in.walk(branch, ns, depth+1)
			if err != nil {
				return nil, err
			}
			union = append(union, walked)
		}
		return union, nil
	case map[string]any:
		return in.walkObject(s, ns, depth)
	}
	return nil, errors.New("parse the schema: a type is neither a name, a union nor an object")
}

func (in *inliner) walkName(name, ns string, depth int) (any, error) {
	if isPrimitive(name) {
		return name, nil
	}
	for _, full := range candidates(name, ns) {
		if in.defined[full] {
			return full, nil
		}
		if definition, ok := in.available[full]; ok {
			return in.walk(definition, "", depth+1)
		}
	}
	return nil, fmt.Errorf("parse the schema: type %q is not defined", name)
}

// candidates are the full names that a name may stand for: within its namespace first, else without any.
func candidates(name, ns string) []string {
	if ns == "" || strings.Contains(name, ".") {
		return []string{name}
	}
	return []string{ns + "." + name, name}
}

func (in *inliner) walkObject(s map[string]any, ns string, depth int) (any, error) {
	out := make(map[string]any, len(s))
	maps.Copy(out, s)
	full, inner := fullName(s, ns)
	if full != "" {
		in.defined[full] = true
		// Written with its whole name, a definition means the same wherever it stands.
		out["name"] = full
		delete(out, "namespace")
		if inner == "" && ns != "" {
			out["namespace"] = ""
		}
	}
	var err error
	switch s["type"] {
	case "record", "error":
		out["fields"], err = in.walkFields(s["fields"], inner, depth)
	case "array":
		out["items"], err = in.walk(s["items"], ns, depth+1)
	case "map":
		out["values"], err = in.walk(s["values"], ns, depth+1)
	case "enum", "fixed":
	default:
		out["type"], err = in.walk(s["type"], ns, depth+1)
	}
	return out, err
}

func (in *inliner) walkFields(fields any, ns string, depth int) ([]any, error) {
	list, ok := fields.([]any)
	if !ok {
		return nil, errors.New("parse the schema: a record has no list of fields")
	}
	out := make([]any, 0, len(list))
	for _, item := range list {
		field, ok := item.(map[string]any)
		if !ok {
			return nil, errors.New("parse the schema: a field is not an object")
		}
		walked := make(map[string]any, len(field))
		maps.Copy(walked, field)
		var err error
		if walked["type"], err = in.walk(field["type"], ns, depth+1); err != nil {
			return nil, err
		}
		out = append(out, walked)
	}
	return out, nil
}

// fullName returns the full name of a named type and the namespace within it; both are empty, or the one around it, for
// other types.
func fullName(s map[string]any, ns string) (full, inner string) {
	switch s["type"] {
	case "record", "error", "enum", "fixed":
	default:
		return "", ns
	}
	name, _ := s["name"].(string)
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		return name, name[:dot]
	}
	if own, ok := s["namespace"].(string); ok {
		ns = own
	}
	if ns == "" {
		return name, ""
	}
	return ns + "." + name, ns
}

func isPrimitive(name string) bool {
	switch name {
	case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
		return true
	}
	return false
}
