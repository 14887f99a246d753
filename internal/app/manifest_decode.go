package app

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"
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
		d.retry(n, path, dst)
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
func (d *manifestDecoder) retry(n ast.Node, path string, dst *ManifestRetry) {
	if _, ok := n.(*ast.IntegerNode); !ok {
		d.structure(n, path, reflect.ValueOf(dst).Elem())
		return
	}
	retries, _ := reflect.TypeFor[ManifestRetry]().FieldByName("Retries")
	d.scalar(n, path, reflect.ValueOf(&dst.Retries).Elem(), newConfigField(retries))
}
