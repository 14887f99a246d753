package schemas

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

func same(v any) (any, error) { return v, nil }

// copyBytes copies, because goavro's bytes point into the record.
func copyBytes(v any) (any, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errValue
	}
	return append([]byte{}, b...), nil
}

// longProjection passes a long on, in the reader's unit if both are timestamps. Plain resolution would take a writer's
// microseconds for milliseconds without a sign.
func longProjection(writer, reader string) projection {
	div := timestampUnit(writer) / max(timestampUnit(reader), 1)
	if timestampUnit(reader) == 0 || div <= 1 {
		return same
	}
	return func(v any) (any, error) {
		n, ok := v.(int64)
		if !ok {
			return nil, errValue
		}
		q := n / div
		if n%div < 0 {
			q--
		}
		return q, nil
	}
}

// timestampUnit is how many of a logical type's units make a second, 0 if it is no timestamp.
func timestampUnit(logical string) int64 {
	switch logical {
	case "timestamp-millis":
		return 1e3
	case "timestamp-micros":
		return 1e6
	case "timestamp-nanos":
		return 1e9
	}
	return 0
}

// promote returns the projection from one primitive to another that may stand for it.
func promote(from, to string) (projection, error) {
	switch from + ">" + to {
	case "int>long":
		return number(func(v any) any { return asInt(v) }), nil
	case "int>float", "long>float":
		return number(func(v any) any { return float32(asInt(v)) }), nil
	case "int>double", "long>double":
		return number(func(v any) any { return float64(asInt(v)) }), nil
	case "float>double":
		return func(v any) (any, error) {
			f, ok := v.(float32)
			if !ok {
				return nil, errValue
			}
			return float64(f), nil
		}, nil
	case "string>bytes":
		return func(v any) (any, error) {
			s, ok := v.(string)
			if !ok {
				return nil, errValue
			}
			return []byte(s), nil
		}, nil
	case "bytes>string":
		return func(v any) (any, error) {
			b, ok := v.([]byte)
			if !ok || !utf8.Valid(b) {
				return nil, errValue
			}
			return string(b), nil
		}, nil
	}
	return nil, fmt.Errorf("the writer's %s cannot be read as %s", from, to)
}

func number(convert func(v any) any) projection {
	return func(v any) (any, error) {
		switch v.(type) {
		case int32, int64:
			return convert(v), nil
		}
		return nil, errValue
	}
}

func asInt(v any) int64 {
	if n, ok := v.(int32); ok {
		return int64(n)
	}
	n, _ := v.(int64)
	return n
}

// defaultValue turns the default of a reader's field, as it stands in the schema, into a value.
func defaultValue(t *avroType, raw any) (any, error) {
	switch t.kind {
	case "union":
		return unionDefault(t, raw)
	case "record":
		return recordDefault(t, raw)
	case "array":
		return arrayDefault(t, raw)
	case "map":
		return mapDefault(t, raw)
	case "null":
		if raw == nil {
			return nil, nil //nolint:nilnil // The value is null.
		}
	case "boolean":
		if b, ok := raw.(bool); ok {
			return b, nil
		}
	case "int", "long", "float", "double":
		return numberDefault(t.kind, raw)
	case "string", "enum":
		if s, ok := raw.(string); ok {
			return s, nil
		}
	case "bytes", "fixed":
		return bytesDefault(raw)
	}
	return nil, errors.New("it does not fit the type")
}

// unionDefault takes the first branch that fits; before Avro 1.12 only the first branch could.
func unionDefault(t *avroType, raw any) (any, error) {
	for _, b := range t.branches {
		if v, err := defaultValue(b, raw); err == nil {
			return v, nil
		}
	}
	return nil, errors.New("it fits no branch of the union")
}

func recordDefault(t *avroType, raw any) (any, error) {
	m, ok := raw.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	out := make(map[string]any, len(t.fields))
	for i := range t.fields {
		f := &t.fields[i]
		val, found := m[f.name]
		if !found {
			if !f.hasDefault {
				return nil, fmt.Errorf("it has no %s", f.name)
			}
			val = f.def
		}
		v, err := defaultValue(f.typ, val)
		if err != nil {
			return nil, err
		}
		out[f.name] = v
	}
	return out, nil
}

func arrayDefault(t *avroType, raw any) (any, error) {
	list, ok := raw.([]any)
	if !ok {
		return nil, errors.New("it is no array")
	}
	out := make([]any, len(list))
	for i, item := range list {
		v, err := defaultValue(t.items, item)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func mapDefault(t *avroType, raw any) (any, error) {
	m, ok := raw.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	out := make(map[string]any, len(m))
	for k, item := range m {
		v, err := defaultValue(t.items, item)
		if err != nil {
			return nil, err
		}
		out[k] = v
	}
	return out, nil
}

func numberDefault(kind string, raw any) (any, error) {
	n, ok := raw.(json.Number)
	if !ok {
		return nil, errors.New("it is no number")
	}
	if kind == "int" || kind == "long" {
		i, err := n.Int64()
		if err != nil {
			return nil, fmt.Errorf("it is no %s", kind)
		}
		if kind == "long" {
			return i, nil
		}
		if i < math.MinInt32 || i > math.MaxInt32 {
			return nil, errors.New("it is no int")
		}
		return int32(i), nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, errors.New("it is out of range")
	}
	if kind == "float" {
		return float32(f), nil
	}
	return f, nil
}

// bytesDefault reads bytes from a string in which each character stands for the byte of its code point.
func bytesDefault(raw any) (any, error) {
	s, ok := raw.(string)
	if !ok {
		return nil, errors.New("it is no string")
	}
	out := make([]byte, 0, len(s))
	for _, c := range s {
		if c < 0 || c > 0xff {
			return nil, errors.New("it holds characters that are no bytes")
		}
		out = append(out, byte(c))
	}
	return out, nil
}
