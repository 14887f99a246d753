package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// dialect is the only JSON Schema dialect there is here.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// schema is a JSON Schema that compiled.
type schema struct {
	raw      []byte
	doc      any
	compiled *jsonschema.Schema
	// shape is nil for a schema that says more.
	shape *shape
}

// validate checks a value that parse returned.
func (s *schema) validate(v any) error {
	if s.shape != nil && s.shape.accepts(v) {
		return nil
	}
	return s.compiled.Validate(v) //nolint:wrapcheck // explain reads it.
}

// fits reports whether a flat value certainly fits, so that it need not be parsed for the validator. Without a schema all fit.
func (s *schema) fits(f *flat) bool {
	return f.ok && (s == nil || s.shape != nil && s.shape.acceptsFlat(f, 0))
}

// compile checks and compiles a schema. what says which of the tool's two schemas it is.
func compile(raw []byte, what string) (*schema, []problem) {
	fault := func(text, fix string) (*schema, []problem) {
		return nil, []problem{{"its " + what + " schema " + text, fix}}
	}
	if len(raw) > maxSchemaBytes {
		return fault(fmt.Sprintf("has %d bytes, the limit is %d", len(raw), maxSchemaBytes), "make it smaller")
	}
	doc, err := parse(raw)
	if err != nil {
		return fault("does not compile: "+err.Error(), "correct it; it may be nested at most 64 deep")
	}
	if m, ok := doc.(map[string]any); ok {
		if other, ok := m["$schema"].(string); ok && strings.TrimSuffix(other, "#") != dialect {
			return fault("is written for "+cut(other, maxName), "write it for JSON Schema 2020-12, or leave $schema out")
		}
	}
	const url = "lathe:///schema"
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource(url, doc); err != nil {
		return fault("does not compile: "+err.Error(), "correct it")
	}
	compiled, err := c.Compile(url)
	if remote, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return fault("refers to "+cut(remote.URL, maxName)+", which is not part of it", "copy what it refers to into $defs")
	}
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		return fault("does not compile: "+explain(invalid.Err), "correct it")
	}
	if err != nil {
		return fault("does not compile: "+cut(err.Error(), maxReason), "correct it")
	}
	return &schema{raw: raw, doc: doc, compiled: compiled, shape: shapeOf(doc)}, nil
}

// compileInput is compile for arguments, which are an object.
func compileInput(raw []byte) (*schema, []problem) {
	s, faults := compile(raw, "input")
	if s == nil {
		return nil, faults
	}
	m, ok := s.doc.(map[string]any)
	if !ok || m["type"] != "object" {
		return nil, []problem{{"its input schema is not that of an object", `give it "type": "object" at the top`}}
	}
	return s, nil
}

// noLoader refuses to fetch anything: a schema stands alone.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("a schema stands alone") }

// clone copies a parsed document.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, item := range v {
			m[k] = clone(item)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = clone(item)
		}
		return list
	case string, bool, json.Number, nil:
		return v
	}
	return v
}
