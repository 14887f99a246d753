package tools

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Providers take only schemas in which every property is required and no other key is allowed. strictness turns a schema into
// such a one for the model and remembers what to take back before the call:
//
//   - a property that may be absent becomes one that may be null, and its null is stripped again;
//   - an object that does not say so is closed: the model may send less than before, never more;
//   - keywords that providers refuse, but that only bound a value, move into the description; the arguments are checked against
//     the tool's own schema all the same.
//
// Whatever cannot be had that way is a fault that names the property and what to write instead.
type strictness struct {
	faults  []problem
	strips  map[string]*strip
	changed bool
}

// strip says which nulls stand for absent properties in one place of the arguments.
type strip struct {
	absent map[string]bool
	fields map[string]*strip
	items  *strip
	// same is set when another place of the schema says it, by $ref.
	same *strip
}

// makeStrict returns the strict form of a schema and what to strip, nil if nothing. It returns the bytes of s unchanged if the
// schema is strict already.
func makeStrict(s *schema) ([]byte, *strip, []problem) {
	doc, ok := clone(s.doc).(map[string]any)
	if !ok {
		return nil, nil, []problem{{"its input schema is not that of an object", `give it "type": "object" at the top`}}
	}
	w := &strictness{strips: map[string]*strip{}}
	w.node(doc, "$", "#")
	if len(w.faults) > 0 {
		return nil, nil, w.faults
	}
	raw := s.raw
	if w.changed {
		raw = appendValue(nil, doc)
	}
	root := w.strips["#"]
	if !root.needed(map[*strip]bool{}) {
		root = nil
	}
	return raw, root, nil
}

func (w *strictness) fault(at, text, fix string) {
	w.faults = append(w.faults, problem{"its input schema is not strict: " + at + " " + text, fix})
}

// at returns the strip of one place, made on first use because a $ref may come before its target.
func (w *strictness) at(pointer string) *strip {
	s, ok := w.strips[pointer]
	if !ok {
		s = &strip{}
		w.strips[pointer] = s
	}
	return s
}

// node makes one schema strict in place. path is where its values stand in the arguments, pointer where it stands itself.
func (w *strictness) node(n map[string]any, path, pointer string) {
	s := w.at(pointer)
	w.unsupported(n, path)
	w.describe(n)
	for _, defs := range []string{"$defs", "definitions"} {
		m, _ := n[defs].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(m)) {
			w.child(m[name], defs+"."+name, pointer+"/"+defs+"/"+escape(name))
		}
	}
	ref, isRef := n["$ref"].(string)
	branches, isAny := n["anyOf"].([]any)
	if (isRef || isAny) && (path == "$" || n["properties"] != nil || isRef && isAny) {
		w.fault(path, "is composed of other schemas", "put the object itself there")
		return
	}
	if isRef {
		w.ref(s, ref, path)
		return
	}
	if isAny {
		w.branches(s, branches, path, pointer)
		return
	}
	switch {
	case allows(n, "object"):
		w.object(s, n, path, pointer)
	case n["type"] == nil && n["enum"] == nil && n["const"] == nil:
		w.fault(path, "takes any value", "give it a type")
	}
	if allows(n, "array") {
		items, ok := n["items"]
		if !ok {
			w.fault(path, "is an array of anything", "give it items with a type")
			return
		}
		s.items = w.at(pointer + "/items")
		w.child(items, path+"[]", pointer+"/items")
	}
}

func (w *strictness) child(v any, path, pointer string) {
	n, ok := v.(map[string]any)
	if !ok {
		w.fault(path, "takes any value", "give it a type")
		return
	}
	w.node(n, path, pointer)
}

func (w *strictness) ref(s *strip, ref, path string) {
	name, ok := strings.CutPrefix(ref, "#/$defs/")
	if !ok {
		name, ok = strings.CutPrefix(ref, "#/definitions/")
	}
	if ref != "#" && (!ok || strings.ContainsAny(name, "/%")) {
		w.fault(path, "refers to "+cut(ref, maxName), "move what it refers to into $defs")
		return
	}
	s.same = w.at(ref)
}

// branches takes alternatives. What to strip must not depend on which of them a value is meant for.
func (w *strictness) branches(s *strip, branches []any, path, pointer string) {
	var others []string
	for i, b := range branches {
		at := fmt.Sprintf("%s/anyOf/%d", pointer, i)
		w.child(b, path, at)
		if m, ok := b.(map[string]any); !ok || m["type"] != "null" {
			others = append(others, at)
		}
	}
	if len(others) == 1 {
		s.same = w.at(others[0])
		return
	}
	for _, at := range others {
		if w.at(at).needed(map[*strip]bool{}) {
			w.fault(path, "has an optional property in one of several alternatives", "make that property required and nullable")
			return
		}
	}
}

func (w *strictness) object(s *strip, n map[string]any, path, pointer string) {
	properties, _ := n["properties"].(map[string]any)
	switch extra := n["additionalProperties"].(type) {
	case map[string]any:
		w.fault(path, "is a map with free keys", "use an array of objects with a key and a value")
	case bool, nil:
		if len(properties) == 0 && extra != false && path != "$" {
			w.fault(path, "is an object without properties", "list its properties, or take JSON in a string")
		}
		w.changed = w.changed || extra != false
		n["additionalProperties"] = false
	}
	required := map[string]bool{}
	listed, _ := n["required"].([]any)
	for _, r := range listed {
		if name, ok := r.(string); ok {
			required[name] = true
		}
	}
	if n["type"] == nil {
		n["type"], w.changed = "object", true
	}
	names := slices.Sorted(maps.Keys(properties))
	s.fields = map[string]*strip{}
	for _, name := range names {
		at := pointer + "/properties/" + name
		s.fields[name] = w.at(at)
		w.child(properties[name], path+"."+name, at)
		if required[name] {
			continue
		}
		if s.absent == nil {
			s.absent = map[string]bool{}
		}
		s.absent[name] = true
		properties[name] = orNull(properties[name])
		listed = append(listed, name)
		w.changed = true
	}
	for name := range required {
		if _, ok := properties[name]; !ok {
			w.fault(path, "requires "+cut(name, maxName)+", which it does not describe", "list it under properties")
		}
	}
	if listed == nil {
		listed = []any{}
	}
	n["properties"], n["required"] = orEmpty(properties), listed
}

// escape writes a name as a part of a JSON pointer.
func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// allows reports whether the schema's type is t, or one of several with t among them.
func allows(n map[string]any, t string) bool {
	switch v := n["type"].(type) {
	case string:
		return v == t
	case []any:
		return slices.Contains(v, any(t))
	case nil:
		return t == "object" && n["properties"] != nil
	}
	return false
}

// orNull lets a schema take null beside what it takes.
func orNull(v any) any {
	n, ok := v.(map[string]any)
	if !ok {
		return v
	}
	if branches, ok := n["anyOf"].([]any); ok {
		if !slices.ContainsFunc(branches, func(b any) bool { m, ok := b.(map[string]any); return ok && m["type"] == "null" }) {
			n["anyOf"] = append(branches, map[string]any{"type": "null"})
		}
		return n
	}
	t, typed := n["type"].(string)
	_, constant := n["const"]
	if n["$ref"] != nil || constant || !typed && n["type"] == nil && n["enum"] == nil {
		return map[string]any{"anyOf": []any{n, map[string]any{"type": "null"}}}
	}
	if typed && t != "null" {
		n["type"] = []any{t, "null"}
	}
	if list, ok := n["type"].([]any); ok && !slices.Contains(list, any("null")) {
		n["type"] = append(list, "null")
	}
	if list, ok := n["enum"].([]any); ok && !slices.Contains(list, nil) {
		n["enum"] = append(list, nil)
	}
	return n
}
