package schemas

import (
	"errors"
	"fmt"
	"sync"

	"github.com/linkedin/goavro/v2"
)

// binaryCodec turns values into Avro binary and back with one schema. Records are map[string]any, arrays []any, and a
// value in a union is nil or a map of one pair, from branchKey to the value.
type binaryCodec interface {
	// decode reads a whole value; b was checked by walkAvro.
	decode(b []byte) (any, error)
	append(dst []byte, v any) ([]byte, error)
}

// goavroCodec is the one place that knows goavro.
type goavroCodec struct {
	codec *goavro.Codec
}

// maxAvroBlock is as many items as a block may claim, and bytes it may announce.
const maxAvroBlock = 1 << 16

// goavroLimits guards goavro's limits, which are variables of its package that start at 2^31-1 and make it allocate what a
// block claims. They are lowered once, before our first codec exists, and never touched again; a program that uses goavro
// on its own and sets them lower keeps its values. walkAvro already refuses such blocks: this is the second lock.
var goavroLimits sync.Once //nolint:gochecknoglobals // What it guards is global.

func newGoavroCodec(t *avroType) (binaryCodec, error) {
	goavroLimits.Do(func() {
		goavro.MaxBlockCount = min(goavro.MaxBlockCount, maxAvroBlock)
		goavro.MaxBlockSize = min(goavro.MaxBlockSize, 16<<20)
	})
	c, err := goavro.NewCodec(t.goavroText())
	if err != nil {
		// goavro's errors print parts of what they are about.
		return nil, errors.New("goavro does not take the schema")
	}
	return &goavroCodec{codec: c}, nil
}

func (c *goavroCodec) decode(b []byte) (any, error) {
	v, rest, err := c.codec.NativeFromBinary(b)
	switch {
	case err != nil:
		return nil, errors.New("goavro does not take the value")
	case len(rest) > 0:
		return nil, fmt.Errorf("%d bytes are left over after the value", len(rest))
	}
	return v, nil
}

func (c *goavroCodec) append(dst []byte, v any) ([]byte, error) {
	out, err := c.codec.BinaryFromNative(dst, v)
	if err != nil {
		return nil, errors.New("goavro does not take the value")
	}
	return out, nil
}
