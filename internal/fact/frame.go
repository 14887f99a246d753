package fact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// Frame is one stored fact: its kind, the seq of its first event, and the fact. A journal record is a sequence of frames
// (RFC 8742), so that frames are encoded once and records are made by joining them.
type Frame struct {
	Seq  int64
	Fact Fact
	// Raw is the frame as it is stored; set by Codec.Frames.
	Raw []byte
}

type kind uint8

const (
	kindAccepted kind = iota + 1
	kindResponded
	kindBegan
	kindNotBegun
	kindFinished
	kindCancelled
	kindEnded
	kindRestarted
)

type wireFrame struct {
	_    struct{} `cbor:",toarray"`
	Kind kind
	Seq  int64
	Body cbor.RawMessage
}

// Codec encodes and decodes frames and agents. Make one with NewCodec; it is safe for concurrent use.
type Codec struct {
	enc cbor.UserBufferEncMode
	dec cbor.DecMode
	// buffers hold what is being encoded until its size is known.
	buffers sync.Pool
}

// NewCodec returns the codec of the stored form.
func NewCodec() (*Codec, error) {
	// Times are text, because a floating-point second does not hold every millisecond.
	enc, err := cbor.EncOptions{Time: cbor.TimeRFC3339NanoUTC, Sort: cbor.SortNone}.UserBufferEncMode()
	if err != nil {
		return nil, fmt.Errorf("make the fact encoder: %w", err)
	}
	// Models and tools may write strings that are not UTF-8. They are stored as they are, so they must be read as they are.
	dec, err := cbor.DecOptions{
		MaxNestedLevels: 32, MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 20, TimeTag: cbor.DecTagIgnored, UTF8: cbor.UTF8DecodeInvalid,
	}.DecMode()
	if err != nil {
		return nil, fmt.Errorf("make the fact decoder: %w", err)
	}
	return &Codec{enc: enc, dec: dec}, nil
}

// Frame encodes a frame onto what room gives, which must have room for n bytes more.
func (c *Codec) Frame(f Frame, room func(n int) []byte) ([]byte, error) {
	k, err := kindOf(f.Fact)
	if err != nil {
		return nil, err
	}
	if f.Seq < 0 {
		return nil, fmt.Errorf("store a fact with seq %d", f.Seq)
	}
	body, _ := c.buffers.Get().(*bytes.Buffer)
	if body == nil {
		body = &bytes.Buffer{}
	}
	defer c.buffers.Put(body)
	body.Reset()
	if b, ok := appendFact(body.AvailableBuffer(), f.Fact); ok {
		body.Write(b)
	} else if err := c.enc.MarshalToBuffer(f.Fact, body); err != nil {
		return nil, fmt.Errorf("encode a fact: %w", err)
	}
	// The frame is written by hand: encoding it around the body would copy the body once more.
	dst := appendHead(room(body.Len()+frameHead), cborArray, 3)
	dst = appendHead(dst, cborUint, uint64(k))
	dst = appendHead(dst, cborUint, uint64(f.Seq))
	return append(dst, body.Bytes()...), nil
}

// frameHead is the most that stands before the body of a frame.
const frameHead = 1 + 2 + 9

// Frames decodes a sequence of frames.
func (c *Codec) Frames(b []byte) ([]Frame, error) {
	var out []Frame
	for len(b) > 0 {
		f, rest, err := c.next(b)
		if err != nil {
			return nil, fmt.Errorf("read fact %d: %w", len(out), err)
		}
		out, b = append(out, f), rest
	}
	return out, nil
}

func (c *Codec) next(b []byte) (f Frame, rest []byte, err error) {
	var w wireFrame
	rest, err = c.dec.UnmarshalFirst(b, &w)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return f, nil, err
	}
	if f.Fact, err = newFact(w.Kind); err != nil {
		return f, nil, err
	}
	if err := c.dec.Unmarshal(w.Body, f.Fact); err != nil {
		return f, nil, err
	}
	f.Seq, f.Raw = w.Seq, b[:len(b)-len(rest)]
	return f, rest, nil
}

// First decodes the first fact of a sequence of frames and leaves the others.
func (c *Codec) First(b []byte) (Fact, error) {
	f, _, err := c.next(b)
	if err != nil {
		return nil, fmt.Errorf("read the first fact: %w", err)
	}
	return f.Fact, nil
}

// Marshal encodes another stored value, such as an Agent.
func (c *Codec) Marshal(v any) ([]byte, error) {
	b, err := c.enc.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

// Unmarshal decodes what Marshal made.
func (c *Codec) Unmarshal(b []byte, v any) error {
	if err := c.dec.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

func kindOf(f Fact) (kind, error) {
	switch f.(type) {
	case *Accepted:
		return kindAccepted, nil
	case *Responded:
		return kindResponded, nil
	case *Began:
		return kindBegan, nil
	case *NotBegun:
		return kindNotBegun, nil
	case *Finished:
		return kindFinished, nil
	case *Cancelled:
		return kindCancelled, nil
	case *Ended:
		return kindEnded, nil
	case *Restarted:
		return kindRestarted, nil
	}
	return 0, fmt.Errorf("store a fact of unknown type %T", f)
}

func newFact(k kind) (Fact, error) {
	switch k {
	case kindAccepted:
		return &Accepted{}, nil
	case kindResponded:
		return &Responded{}, nil
	case kindBegan:
		return &Began{}, nil
	case kindNotBegun:
		return &NotBegun{}, nil
	case kindFinished:
		return &Finished{}, nil
	case kindCancelled:
		return &Cancelled{}, nil
	case kindEnded:
		return &Ended{}, nil
	case kindRestarted:
		return &Restarted{}, nil
	}
	return nil, fmt.Errorf("read a fact of unknown kind %d: a newer release wrote it", k)
}
