package tools

import (
	"encoding/json"
	"reflect"
)

// decoder reads the arguments of a tool into a new value of its Go type.
type decoder struct {
	fresh func() any // Gives a pointer.
	plain plainStruct
}

// decode returns what fresh gave, filled from arguments that are parsed already, or read by encoding/json from their canonical form.
func (d *decoder) decode(input []byte, args map[string]any) (any, error) {
	in := d.fresh()
	if d.plain != nil && d.plain.fill(reflect.ValueOf(in).Elem(), args) {
		return in, nil
	}
	return d.unmarshal(input)
}

// decodeFlat is decode for arguments that are flat.
func (d *decoder) decodeFlat(input []byte, args *flat) (any, error) {
	in := d.fresh()
	if d.plain != nil && d.plain.fillFlat(reflect.ValueOf(in).Elem(), args) {
		return in, nil
	}
	return d.unmarshal(input)
}

func (d *decoder) unmarshal(input []byte) (any, error) {
	in := d.fresh()
	return in, json.Unmarshal(input, in) //nolint:wrapcheck // undecodable reads it.
}
