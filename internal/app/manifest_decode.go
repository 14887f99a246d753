package app

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// manifestDecoder fills the structs of the manifest from YAML, strictly, and goes on after a fault so that all are found.
type manifestDecoder struct {
	manifestFaults
	anchors map[string]ast.Node
	// unreadable is set when the file is no YAML.
	unreadable bool
}

func newManifestDecoder(file string) *manifestDecoder {
	return &manifestDecoder{
		manifestFaults: manifestFaults{file: file, lines: map[string]int{}},
		anchors:        map[string]ast.Node{},
	}
}

func (d *manifestDecoder) decodeFile(content []byte, m *Manifest) {
	root, err := parseYAML(content)
	if err != nil {
		d.unreadable = true
		var at interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if errors.As(err, &at) && at.GetToken() != nil {
			d.faultAt(lineOf(at.GetToken()), "", "%s", at.GetMessage())
			return
		}
		d.faultAt(0, "", "%s", err)
		return
	}
	ast.Walk(anchorCollector(d.anchors), root)
	d.value(root, "", reflect.ValueOf(m).Elem(), configField{typ: reflect.TypeFor[Manifest]()})
}

// parseYAML returns the one document of a file.
func parseYAML(content []byte) (root ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("is not YAML: %v", p)
		}
	}()
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return nil, fmt.Errorf("parse the YAML: %w", err)
	}
	docs := slices.DeleteFunc(file.Docs, func(doc *ast.DocumentNode) bool { return doc.Body == nil })
	switch len(docs) {
	case 0:
		return nil, errors.New("is empty; a manifest starts with version: 1")
	case 1:
		return docs[0].Body, nil
	}
	return nil, errors.New("holds several YAML documents; a manifest is one")
}

// anchorCollector is a visitor that keeps what each anchor names.
type anchorCollector map[string]ast.Node

// Visit implements ast.Visitor.
func (c anchorCollector) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		c[anchor.Name.GetToken().Value] = anchor.Value
	}
	return c
}

// resolve follows aliases and anchors to the node they stand for; nil when there is none, which is reported.
func (d *manifestDecoder) resolve(n ast.Node, path string) ast.Node {
	// An alias may name itself; no sane file needs more hops.
	for range 16 {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.AliasNode:
			name := node.Value.GetToken().Value
			target, ok := d.anchors[name]
			if !ok {
				d.fault(path, "there is no anchor &%s", name)
				return nil
			}
			n = target
		case *ast.TagNode:
			d.fault(path, "YAML tags (%s) have no meaning here", node.Start.Value)
			return nil
		default:
			return n
		}
	}
	d.fault(path, "the alias leads nowhere")
	return nil
}

// value decodes a node into v. Null leaves v as it is: null is unset.
func (d *manifestDecoder) value(n ast.Node, path string, v reflect.Value, f configField) {
	n = d.resolve(n, path)
	if n == nil || n.Type() == ast.NullType {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch dst := v.Addr().Interface().(type) {
	case *time.Duration, *ByteSize, *ManifestGate:
		d.scalar(n, path, v, f)
	case *ManifestRetry:
		d.retry(n, path, dst, f)
	default:
		d.kind(n, path, v, f)
	}
}

func (d *manifestDecoder) kind(n ast.Node, path string, v reflect.Value, f configField) {
	//exhaustive:ignore // The rest are scalars.
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, path, v)
	case reflect.Map:
		d.table(n, path, v, f)
	case reflect.Slice:
		d.list(n, path, v, f)
	default:
		d.scalar(n, path, v, f)
	}
}

// manifestEntry is one key of a mapping with its value.
type manifestEntry struct {
	key   string
	path  string
	value ast.Node
}

// entries lists a mapping, and keeps the lines of its keys.
func (d *manifestDecoder) entries(n ast.Node, path string) (entries []manifestEntry, ok bool) {
	var pairs []*ast.MappingValueNode
	switch node := n.(type) {
	case *ast.MappingNode:
		pairs = node.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{node}
	default:
		d.fault(path, "wants a mapping, not %s", nodeName(n))
		return nil, false
	}
	entries = make([]manifestEntry, 0, len(pairs))
	for _, pair := range pairs {
		key := pair.Key.GetToken()
		if pair.Key.IsMergeKey() {
			d.faultAt(lineOf(key), path, "merge keys (<<) are not supported")
			continue
		}
		e := manifestEntry{key: key.Value, path: below(path, key.Value), value: pair.Value}
		d.lines[e.path] = lineOf(key)
		entries = append(entries, e)
	}
	return entries, true
}

func (d *manifestDecoder) structure(n ast.Node, path string, v reflect.Value) {
	fields := manifestFields(v.Type())
	setManifestDefaults(v)
	entries, ok := d.entries(n, path)
	if !ok {
		return
	}
	later := laterKeys(v.Type())
	given := map[string]bool{}
	for _, e := range entries {
		i := slices.IndexFunc(fields, func(f configField) bool { return f.key == e.key })
		if i < 0 {
			d.refuseKey(e, fields, later)
			continue
		}
		resolved := d.resolve(e.value, e.path)
		given[e.key] = resolved == nil || resolved.Type() != ast.NullType
		if resolved != nil {
			d.value(resolved, e.path, v.FieldByIndex(fields[i].index), fields[i])
		}
	}
	for _, f := range fields {
		if f.required && !given[f.key] {
			d.faultAt(d.lines[path], below(path, f.key), "is required: %s", f.desc)
		}
	}
}

// refuseKey reports a key that has no field: a feature of a later release by its name, else as unknown. A feature that is
// expressly not asked for is accepted.
func (d *manifestDecoder) refuseKey(e manifestEntry, fields []configField, later map[string]string) {
	if feature, ok := later[e.key]; ok {
		n := d.resolve(e.value, e.path)
		if off, isBool := n.(*ast.BoolNode); n == nil || n.Type() == ast.NullType || isBool && !off.Value {
			return
		}
		if feature == e.key {
			d.fault(e.path, "%s is not supported yet by this release", e.key)
			return
		}
		d.fault(e.path, "%s is not supported yet by this release (%s)", e.key, feature)
		return
	}
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	if nearest := nearestName(e.key, keys); nearest != "" {
		d.fault(e.path, "unknown key; the nearest is %s", nearest)
		return
	}
	d.fault(e.path, "unknown key; the keys here are %s", strings.Join(keys, ", "))
}

// laterKeys reads the later tags of a struct: keys of features that a later release has, and what to call the feature.
func laterKeys(t reflect.Type) map[string]string {
	keys := map[string]string{}
	for sf := range t.Fields() {
		for _, entry := range strings.Split(sf.Tag.Get("later"), ",") {
			key, feature, named := strings.Cut(entry, "=")
			if !named {
				feature = key
			}
			if key != "" {
				keys[key] = feature
			}
		}
	}
	return keys
}

func (d *manifestDecoder) table(n ast.Node, path string, v reflect.Value, f configField) {
	m := reflect.MakeMap(v.Type())
	entries, ok := d.entries(n, path)
	for _, e := range entries {
		node := d.resolve(e.value, e.path)
		if node != nil && node.Type() == ast.NullType {
			// An entry with nothing in it is still an entry.
			node = &ast.MappingNode{}
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		if node != nil {
			d.value(node, e.path, elem, configField{typ: elem.Type()})
		}
		m.SetMapIndex(reflect.ValueOf(e.key), elem)
	}
	if f.required && ok && len(entries) == 0 {
		d.fault(path, "is empty: %s", f.desc)
	}
	v.Set(m)
}

func (d *manifestDecoder) list(n ast.Node, path string, v reflect.Value, f configField) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(path, "wants a list, not %s", nodeName(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, node := range seq.Values {
		at := item(path, i)
		d.lines[at] = lineOf(node.GetToken())
		if node.Type() == ast.NullType {
			d.fault(at, "is empty")
			continue
		}
		d.value(node, at, list.Index(i), configField{typ: v.Type().Elem(), tag: f.tag})
	}
	v.Set(list)
}

// retry reads a number of retries, or a policy.
func (d *manifestDecoder) retry(n ast.Node, path string, dst *ManifestRetry, f configField) {
	if _, ok := n.(*ast.IntegerNode); !ok {
		d.structure(n, path, reflect.ValueOf(dst).Elem())
		return
	}
	retries, _ := reflect.TypeFor[ManifestRetry]().FieldByName("Retries")
	f = newConfigField(retries)
	d.scalar(n, path, reflect.ValueOf(&dst.Retries).Elem(), f)
}

// setManifestDefaults sets each field of a struct to its default.
func setManifestDefaults(v reflect.Value) {
	for _, f := range manifestFields(v.Type()) {
		// A setting's default is not for the manifest: what an agent does not set, the setting says.
		if f.fallback != "" && f.env == "" {
			setConfigText(v.FieldByIndex(f.index), f.fallback)
		}
	}
}

// defaultTurnLimits are the defaults of the LATHE_TURN_ settings.
func defaultTurnLimits() TurnLimits {
	var l TurnLimits
	v := reflect.ValueOf(&l).Elem()
	for _, f := range settingFields(v.Type()) {
		setConfigText(v.FieldByIndex(f.index), f.fallback)
	}
	return l
}

func lineOf(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}

// nodeName says what a node is, for a fault.
func nodeName(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode:
		return "a whole number"
	case *ast.FloatNode:
		return "a number"
	case *ast.InfinityNode, *ast.NanNode:
		return "an infinite or no number"
	case *ast.BoolNode:
		return "a boolean"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	}
	return strings.ToLower(n.Type().String())
}

// wholeNumber gives the value of an integer node that an int64 holds.
func wholeNumber(n *ast.IntegerNode) (int64, bool) {
	switch value := n.Value.(type) {
	case int64:
		return value, true
	case uint64:
		return int64(value), value <= math.MaxInt64
	}
	return 0, false
}
