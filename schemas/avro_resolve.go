package schemas

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// errValue says that a value is not what the plan expects. It holds no data.
var errValue = errors.New("a value does not fit the schema")

// projection turns a value that goavro decoded with a writer's schema into the reader's shape: unions without their
// wrapping, records as maps with the reader's fields, defaults filled in.
type projection func(v any) (any, error)

// resolver makes the projections of one pair of schemas by the Avro rules of schema resolution. goavro has none: it reads
// with the writer's schema and nothing else. A pair of types is planned once, however often it occurs.
type resolver struct {
	done map[[2]*avroType]projection
}

// resolveAvro plans the way from writer to reader, or says why there is none. Its errors name types and fields of the
// schemas and are safe to publish.
func resolveAvro(writer, reader *avroType) (projection, error) {
	r := &resolver{done: make(map[[2]*avroType]projection)}
	return r.plan(writer, reader)
}

func (r *resolver) plan(w, rd *avroType) (projection, error) {
	pair := [2]*avroType{w, rd}
	if p, ok := r.done[pair]; ok {
		return p, nil
	}
	p, err := r.make(w, rd)
	if err != nil {
		return nil, err
	}
	r.done[pair] = p
	return p, nil
}

func (r *resolver) make(w, rd *avroType) (projection, error) {
	switch {
	case w.kind == "union":
		return r.fromUnion(w, rd)
	case rd.kind == "union":
		b := matchBranch(w, rd)
		if b == nil {
			return nil, fmt.Errorf("the writer's %s fits no branch of the union", w.kind)
		}
		return r.plan(w, b)
	case w.kind != rd.kind:
		return promote(w.kind, rd.kind)
	}
	switch rd.kind {
	case "record":
		return r.record(w, rd)
	case "enum":
		return enumProjection(w, rd)
	case "fixed":
		if !sameNamed(w, rd) {
			return nil, fmt.Errorf("fixed %s is not %s", w.name, rd.name)
		}
		return copyBytes, nil
	case "array":
		return r.array(w, rd)
	case "map":
		return r.mapping(w, rd)
	case "bytes":
		return copyBytes, nil
	case "long":
		return longProjection(w.logical, rd.logical), nil
	}
	return same, nil
}

// fromUnion plans each branch of the writer's. A branch that the reader cannot take is an error only when a value of it
// comes, as the specification has it: producers who make everything nullable never send the null.
func (r *resolver) fromUnion(w, rd *avroType) (projection, error) {
	branches := make(map[string]projection, len(w.branches))
	var last error
	for _, b := range w.branches {
		p, err := r.plan(b, rd)
		if err != nil {
			last = err
			continue
		}
		branches[b.branchKey()] = p
	}
	if len(branches) == 0 {
		return nil, last
	}
	return func(v any) (any, error) {
		key, inner := "null", any(nil)
		if v != nil {
			m, ok := v.(map[string]any)
			if !ok || len(m) != 1 {
				return nil, errValue
			}
			for key, inner = range m { // Takes out the one pair.
			}
		}
		p, ok := branches[key]
		if !ok {
			return nil, errValue
		}
		return p(inner)
	}, nil
}

func (r *resolver) record(w, rd *avroType) (projection, error) {
	if !sameNamed(w, rd) {
		return nil, fmt.Errorf("record %s is not %s", w.name, rd.name)
	}
	type step struct {
		from, to string
		project  projection
	}
	var steps []step
	defaults := make(map[string]any)
	for i := range rd.fields {
		f := &rd.fields[i]
		wf := w.fieldFor(f)
		if wf == nil {
			if !f.hasDefault {
				return nil, fmt.Errorf("the writer has no field %s.%s, which has no default", unqualified(rd.name), f.name)
			}
			def, err := defaultValue(f.typ, f.def)
			if err != nil {
				return nil, fmt.Errorf("the default of %s.%s: %w", unqualified(rd.name), f.name, err)
			}
			defaults[f.name] = def
			continue
		}
		p, err := r.plan(wf.typ, f.typ)
		if err != nil {
			return nil, fmt.Errorf("field %s.%s: %w", unqualified(rd.name), f.name, err)
		}
		steps = append(steps, step{from: wf.name, to: f.name, project: p})
	}
	return func(v any) (any, error) {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, errValue
		}
		out := make(map[string]any, len(steps)+len(defaults))
		for _, s := range steps {
			val, err := s.project(m[s.from])
			if err != nil {
				return nil, err
			}
			out[s.to] = val
		}
		maps.Copy(out, defaults)
		return out, nil
	}, nil
}

// fieldFor finds the writer's field that fills a field of the reader's: the one of its name, else of one of its aliases.
func (t *avroType) fieldFor(f *avroField) *avroField {
	for _, name := range append([]string{f.name}, f.aliases...) {
		for i := range t.fields {
			if t.fields[i].name == name {
				return &t.fields[i]
			}
		}
	}
	return nil
}

func (r *resolver) array(w, rd *avroType) (projection, error) {
	items, err := r.plan(w.items, rd.items)
	if err != nil {
		return nil, err
	}
	return func(v any) (any, error) {
		list, ok := v.([]any)
		if !ok {
			return nil, errValue
		}
		out := make([]any, len(list))
		for i, item := range list {
			val, err := items(item) // A variable of its own: projections run side by side.
			if err != nil {
				return nil, err
			}
			out[i] = val
		}
		return out, nil
	}, nil
}

func (r *resolver) mapping(w, rd *avroType) (projection, error) {
	values, err := r.plan(w.items, rd.items)
	if err != nil {
		return nil, err
	}
	return func(v any) (any, error) {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, errValue
		}
		out := make(map[string]any, len(m))
		for k, item := range m {
			val, err := values(item)
			if err != nil {
				return nil, err
			}
			out[k] = val
		}
		return out, nil
	}, nil
}

func enumProjection(w, rd *avroType) (projection, error) {
	if !sameNamed(w, rd) {
		return nil, fmt.Errorf("enum %s is not %s", w.name, rd.name)
	}
	return func(v any) (any, error) {
		s, ok := v.(string)
		switch {
		case !ok:
			return nil, errValue
		case slices.Contains(rd.symbols, s):
			return s, nil
		case rd.enumDefault != "":
			return rd.enumDefault, nil
		}
		return nil, errValue
	}, nil
}

// matchBranch finds the reader's branch for a writer's type: one of the same full name, else one of a name that fits, else
// one that it can be promoted to.
func matchBranch(w, union *avroType) *avroType {
	tiers := []func(b *avroType) bool{
		func(b *avroType) bool { return b.kind == w.kind && b.name == w.name && b.size == w.size },
		func(b *avroType) bool { return b.kind == w.kind && sameNamed(w, b) },
		func(b *avroType) bool { _, err := promote(w.kind, b.kind); return err == nil },
	}
	for _, fits := range tiers {
		if i := slices.IndexFunc(union.branches, fits); i >= 0 {
			return union.branches[i]
		}
	}
	return nil
}

// sameNamed reports whether the reader's named type takes the writer's: by unqualified name or by alias, and of the same
// size if fixed.
func sameNamed(w, rd *avroType) bool {
	if w.size != rd.size {
		return false
	}
	if unqualified(w.name) == unqualified(rd.name) {
		return true
	}
	return slices.ContainsFunc(rd.aliases, func(a avroAlias) bool {
		return a.full == w.name || a.bare && unqualified(a.full) == unqualified(w.name)
	})
}
