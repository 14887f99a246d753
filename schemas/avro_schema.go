package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// avroType is a parsed Avro schema. Named types are shared where they are referred to, so it is a graph; it has no cycle,
// because recursive schemas are refused.
type avroType struct {
	// kind is a primitive's name, or record, enum, fixed, array, map or union.
	kind    string
	logical string
	// name and aliases are full names; only records, enums and fixed have them.
	name    string
	aliases []avroAlias
	doc     string

	fields      []avroField // record
	branches    []*avroType // union
	items       *avroType   // array, map
	symbols     []string    // enum
	enumDefault string      // enum
	size        int         // fixed

	// height counts the levels from here down; zeroWidth says that a value takes no byte.
	height    int
	zeroWidth bool
}

type avroField struct {
	name       string
	aliases    []string
	doc        string
	typ        *avroType
	def        any
	hasDefault bool
}

// avroAlias is another name of a named type. An alias written without a dot fits a writer's type of that name in any
// namespace.
type avroAlias struct {
	full string
	bare bool
}

// schemaLimits bound a writer's schema; what is 0 takes its default.
type schemaLimits struct {
	// bytes bounds the text, depth the levels of nesting of text and type, names the named types.
	bytes, depth, names int
}

func (l schemaLimits) withDefaults() schemaLimits {
	l.bytes = positiveOr(l.bytes, 256<<10)
	l.depth = positiveOr(l.depth, 64)
	l.names = positiveOr(l.names, 1024)
	return l
}

func positiveOr(v, def int) int {
	if v > 0 {
		return v
	}
	return def
}

// parseAvroSchema reads a schema. Attributes that it does not know are ignored; what could make a decoder run without end
// (recursion, items without width, too much nesting) is refused here, before there is any data. Its errors are safe to
// publish: they name types and fields of the schema, never data.
func parseAvroSchema(text string, limits schemaLimits) (*avroType, error) {
	limits = limits.withDefaults()
	if len(text) > limits.bytes {
		return nil, fmt.Errorf("the schema has %d bytes, more than %d", len(text), limits.bytes)
	}
	// JSON nests about three levels for one of the type: type, fields, field.
	if err := checkJSON([]byte(quoteBareName(text)), 4*limits.depth); err != nil {
		return nil, fmt.Errorf("the schema is no JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(quoteBareName(text))))
	d.UseNumber()
	var raw any
	if err := d.Decode(&raw); err != nil {
		return nil, errors.New("the schema is no JSON")
	}
	p := &schemaParser{limits: limits, named: make(map[string]*avroType)}
	return p.parse(raw, "", 0)
}

// quoteBareName makes JSON of a schema that is just a name without quotes, as some registries hand out primitives.
func quoteBareName(text string) string {
	text = strings.TrimSpace(text)
	if isPrimitive(text) {
		return `"` + text + `"`
	}
	return text
}

type schemaParser struct {
	limits schemaLimits
	// named holds the types defined so far; nil is one whose definition is not finished.
	named map[string]*avroType
}

func (p *schemaParser) parse(raw any, space string, depth int) (*avroType, error) {
	if depth > p.limits.depth {
		return nil, fmt.Errorf("the schema nests deeper than %d levels", p.limits.depth)
	}
	var t *avroType
	var err error
	switch v := raw.(type) {
	case string:
		return p.byName(v, space)
	case []any:
		t, err = p.union(v, space, depth)
	case map[string]any:
		t, err = p.object(v, space, depth)
	default:
		return nil, errors.New("a type is neither a name, nor an object, nor an array")
	}
	if err != nil {
		return nil, err
	}
	return t, p.measure(t)
}

// byName resolves a primitive's name, or a reference to a type defined before.
func (p *schemaParser) byName(name, space string) (*avroType, error) {
	if isPrimitive(name) {
		return &avroType{kind: name, height: 1, zeroWidth: name == "null"}, nil
	}
	if checkFullName(name) != nil {
		return nil, errors.New("a type's name is not valid")
	}
	t, found := p.named[qualify(name, space)]
	if !found {
		t, found = p.named[name]
	}
	switch {
	case !found:
		return nil, fmt.Errorf("unknown type %s", name)
	case t == nil:
		return nil, fmt.Errorf("type %s is recursive", name)
	}
	return t, nil
}

func (p *schemaParser) union(raw []any, space string, depth int) (*avroType, error) {
	t := &avroType{kind: "union", branches: make([]*avroType, len(raw))}
	seen := make(map[string]bool, len(raw))
	for i, r := range raw {
		b, err := p.parse(r, space, depth+1)
		if err != nil {
			return nil, err
		}
		if b.kind == "union" {
			return nil, errors.New("a union holds a union")
		}
		if seen[b.branchKey()] {
			return nil, errors.New("a union holds a type twice")
		}
		seen[b.branchKey()] = true
		t.branches[i] = b
	}
	if len(raw) == 0 {
		return nil, errors.New("a union is empty")
	}
	return t, nil
}

func (p *schemaParser) object(raw map[string]any, space string, depth int) (*avroType, error) {
	kind, ok := raw["type"].(string)
	if !ok {
		inner, found := raw["type"]
		if !found {
			return nil, errors.New("a type has no `type`")
		}
		return p.parse(inner, space, depth+1)
	}
	switch kind {
	case "record", "error":
		return p.record(raw, space, depth)
	case "enum", "fixed":
		return p.leaf(kind, raw, space)
	case "array":
		return p.container(kind, raw["items"], space, depth)
	case "map":
		return p.container(kind, raw["values"], space, depth)
	}
	t, err := p.byName(kind, space)
	if err != nil || !isPrimitive(kind) {
		return t, err
	}
	t.logical, _ = raw["logicalType"].(string)
	return t, nil
}

func (p *schemaParser) container(kind string, raw any, space string, depth int) (*avroType, error) {
	items, err := p.parse(raw, space, depth+1)
	if err != nil {
		return nil, err
	}
	if items.zeroWidth {
		return nil, fmt.Errorf("the items of a %s take no bytes, so that a few bytes could claim any number of them", kind)
	}
	return &avroType{kind: kind, items: items}, nil
}

func (p *schemaParser) record(raw map[string]any, space string, depth int) (*avroType, error) {
	t, space, err := p.define("record", raw, space)
	if err != nil {
		return nil, err
	}
	fields, ok := raw["fields"].([]any)
	if !ok {
		return nil, fmt.Errorf("record %s has no fields", t.name)
	}
	t.fields = make([]avroField, len(fields))
	seen := make(map[string]bool, len(fields))
	for i, f := range fields {
		if t.fields[i], err = p.field(f, space, depth); err != nil {
			return nil, fmt.Errorf("record %s: %w", t.name, err)
		}
		if seen[t.fields[i].name] {
			return nil, fmt.Errorf("record %s has field %s twice", t.name, t.fields[i].name)
		}
		seen[t.fields[i].name] = true
	}
	p.named[t.name] = t
	return t, nil
}

func (p *schemaParser) field(raw any, space string, depth int) (avroField, error) {
	m, _ := raw.(map[string]any)
	var f avroField
	f.name, _ = m["name"].(string)
	if !isAvroName(f.name) {
		return f, errors.New("a field has no valid name")
	}
	typ, found := m["type"]
	if !found {
		return f, fmt.Errorf("field %s has no type", f.name)
	}
	var err error
	if f.typ, err = p.parse(typ, space, depth+1); err != nil {
		return f, fmt.Errorf("field %s: %w", f.name, err)
	}
	f.doc, _ = m["doc"].(string)
	f.def, f.hasDefault = m["default"]
	f.aliases, err = stringList(m["aliases"])
	if err != nil {
		return f, fmt.Errorf("field %s: aliases: %w", f.name, err)
	}
	return f, nil
}

// leaf reads an enum or a fixed.
func (p *schemaParser) leaf(kind string, raw map[string]any, space string) (*avroType, error) {
	t, _, err := p.define(kind, raw, space)
	if err != nil {
		return nil, err
	}
	if kind == "fixed" {
		n, _ := raw["size"].(json.Number)
		size, err := n.Int64()
		if err != nil || size < 0 || size > 1<<30 {
			return nil, fmt.Errorf("fixed %s has no valid size", t.name)
		}
		t.size = int(size)
		t.logical, _ = raw["logicalType"].(string)
	} else if err := t.readSymbols(raw); err != nil {
		return nil, err
	}
	p.named[t.name] = t
	return t, nil
}

func (t *avroType) readSymbols(raw map[string]any) error {
	symbols, err := stringList(raw["symbols"])
	if err != nil || len(symbols) == 0 {
		return fmt.Errorf("enum %s has no valid symbols", t.name)
	}
	seen := make(map[string]bool, len(symbols))
	for _, s := range symbols {
		if !isAvroName(s) || seen[s] {
			return fmt.Errorf("enum %s has no valid symbols", t.name)
		}
		seen[s] = true
	}
	t.symbols = symbols
	t.enumDefault, _ = raw["default"].(string)
	if t.enumDefault != "" && !seen[t.enumDefault] {
		return fmt.Errorf("the default of enum %s is none of its symbols", t.name)
	}
	return nil
}

// define starts a named type and returns it with the namespace inside it.
func (p *schemaParser) define(kind string, raw map[string]any, space string) (*avroType, string, error) {
	name, _ := raw["name"].(string)
	if own, ok := raw["namespace"].(string); ok {
		space = own
	}
	full := qualify(name, space)
	if err := checkFullName(full); err != nil {
		return nil, "", fmt.Errorf("a %s: %w", kind, err)
	}
	if _, taken := p.named[full]; taken || isPrimitive(full) {
		return nil, "", fmt.Errorf("type %s is defined twice", full)
	}
	if len(p.named) >= p.limits.names {
		return nil, "", fmt.Errorf("the schema names more than %d types", p.limits.names)
	}
	p.named[full] = nil
	space = ""
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		space = full[:i]
	}
	t := &avroType{kind: kind, name: full}
	t.doc, _ = raw["doc"].(string)
	aliases, err := stringList(raw["aliases"])
	if err != nil {
		return nil, "", fmt.Errorf("type %s: aliases: %w", full, err)
	}
	for _, a := range aliases {
		t.aliases = append(t.aliases, avroAlias{full: qualify(a, space), bare: !strings.Contains(a, ".")})
	}
	return t, space, nil
}

// measure sets the height and width of a type from those of its parts, which are complete.
func (p *schemaParser) measure(t *avroType) error {
	if t.height > 0 {
		return nil
	}
	zero := t.kind == "record" || t.kind == "fixed" && t.size == 0
	height := 0
	for i := range t.fields {
		height = max(height, t.fields[i].typ.height)
		zero = zero && t.fields[i].typ.zeroWidth
	}
	for _, b := range t.branches {
		height = max(height, b.height)
	}
	if t.items != nil {
		height = t.items.height
	}
	t.height, t.zeroWidth = height+1, zero
	if t.height > p.limits.depth {
		return fmt.Errorf("the schema nests deeper than %d levels", p.limits.depth)
	}
	return nil
}
