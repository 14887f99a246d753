package schemas

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// avroWalker goes over the bytes of a value before goavro does, and allocates nothing. goavro makes room for as many items
// as a block claims, makes a map for each record however small, takes varints of any length and reads on without counting;
// what passes here is a whole value of the schema, with valid UTF-8, within a number of values that fits in memory, and
// nothing after it.
type avroWalker struct {
	b    []byte
	left int
	// most is the limit.
	most int
}

// walkAvro checks that b is exactly one value of t made of at most maxValues values.
func walkAvro(t *avroType, b []byte, maxValues int) error {
	w := avroWalker{b: b, left: maxValues, most: maxValues}
	end, err := w.value(t, 0)
	if err != nil {
		return err
	}
	if end != len(b) {
		return fmt.Errorf("%d bytes are left over after the value", len(b)-end)
	}
	return nil
}

func (w *avroWalker) value(t *avroType, at int) (int, error) {
	if w.left--; w.left < 0 {
		return 0, fmt.Errorf("it has more than %d values, at byte %d", w.most, at)
	}
	switch t.kind {
	case "null":
		return at, nil
	case "boolean":
		if at < len(w.b) && w.b[at] > 1 {
			return 0, fmt.Errorf("a boolean is neither 0 nor 1, at byte %d", at)
		}
		return w.skip(at, 1)
	case "int":
		v, end, err := w.varint(at)
		if err == nil && (v < math.MinInt32 || v > math.MaxInt32) {
			return 0, fmt.Errorf("an int is out of range, at byte %d", at)
		}
		return end, err
	case "long":
		_, end, err := w.varint(at)
		return end, err
	case "float":
		return w.skip(at, 4)
	case "double":
		return w.skip(at, 8)
	case "bytes":
		return w.bytes(at, false)
	case "string":
		return w.bytes(at, true)
	case "fixed":
		return w.skip(at, int64(t.size))
	case "enum":
		_, end, err := w.index(at, len(t.symbols))
		return end, err
	case "union":
		i, end, err := w.index(at, len(t.branches))
		if err != nil {
			return 0, err
		}
		return w.value(t.branches[i], end)
	case "record":
		return w.record(t, at)
	}
	return w.blocks(t, at)
}

func (w *avroWalker) record(t *avroType, at int) (int, error) {
	var err error
	for i := range t.fields {
		if at, err = w.value(t.fields[i].typ, at); err != nil {
			return 0, err
		}
	}
	return at, nil
}

// blocks reads the blocks of an array or a map. Every item takes a byte at least, since schemas whose items do not are
// refused, so a block cannot claim more items than there are bytes.
func (w *avroWalker) blocks(t *avroType, at int) (int, error) {
	for {
		count, next, err := w.varint(at)
		if err != nil || count == 0 {
			return next, err
		}
		if count < 0 {
			// The size in bytes follows; it is there to be skipped by, and we do not skip. -count overflows for the
			// least int64 and stays negative, which the next check refuses.
			count = -count
			var size int64
			if size, next, err = w.varint(next); err != nil {
				return 0, err
			}
			if size < 0 || size > int64(len(w.b)-next) {
				return 0, fmt.Errorf("a block claims more bytes than there are, at byte %d", at)
			}
		}
		if count < 0 || count > int64(len(w.b)-next) {
			return 0, fmt.Errorf("a block claims more items than there are bytes, at byte %d", at)
		}
		for at = next; count > 0; count-- {
			if t.kind == "map" {
				if at, err = w.bytes(at, true); err != nil {
					return 0, err
				}
			}
			if at, err = w.value(t.items, at); err != nil {
				return 0, err
			}
		}
	}
}

func (w *avroWalker) bytes(at int, text bool) (int, error) {
	size, at, err := w.varint(at)
	if err != nil {
		return 0, err
	}
	end, err := w.skip(at, size)
	if err == nil && text && !utf8.Valid(w.b[at:end]) {
		return 0, fmt.Errorf("a string is not valid UTF-8, at byte %d", at)
	}
	return end, err
}

func (w *avroWalker) skip(at int, n int64) (int, error) {
	if n < 0 || n > int64(len(w.b)-at) {
		return 0, fmt.Errorf("a value goes beyond the end, at byte %d", at)
	}
	return at + int(n), nil
}

func (w *avroWalker) index(at, n int) (i, end int, err error) {
	v, end, err := w.varint(at)
	if err == nil && (v < 0 || v >= int64(n)) {
		return 0, 0, fmt.Errorf("a branch or symbol does not exist, at byte %d", at)
	}
	return int(v), end, err
}

// varint reads a zig-zag number of at most ten bytes.
func (w *avroWalker) varint(at int) (v int64, end int, err error) {
	v, n := binary.Varint(w.b[at:])
	if n <= 0 {
		return 0, 0, fmt.Errorf("a number is cut off or too long, at byte %d", at)
	}
	return v, at + n, nil
}
