package consumer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lathe-run/lathe/internal/statestore"
)

// positionKey is the state key of the input position. It never expires.
const positionKey = "p"

// maxDoneRanges bounds what a position record is believed to hold; the window bounds what one is written with.
const maxDoneRanges = 1 << 20

// inputPosition is how far the input of a partition is done, as part of its state: it is committed with the offsets of the
// group, and outlives them.
type inputPosition struct {
	// TopicID and Partitions are those of the input topic: another id makes the offsets meaningless, another count moves keys.
	TopicID    [16]byte
	Partitions int32
	// Next is the offset to begin at, Done what was done beyond it.
	Next int64
	Done []offsetRange
}

var errPositionRecord = errors.New("the position record is damaged")

// encode writes the format version, topic id, partition count, Next, and the ranges as distances from one bound to the next.
func (p inputPosition) encode() []byte {
	b := make([]byte, 0, 1+16+4+10+10+len(p.Done)*6)
	b = append(b, statestore.Format)
	b = append(b, p.TopicID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Partitions)) //nolint:gosec // Counts are not negative.
	b = binary.AppendUvarint(b, uint64(p.Next))                //nolint:gosec // Offsets are not negative.
	b = binary.AppendUvarint(b, uint64(len(p.Done)))
	at := p.Next
	for _, r := range p.Done {
		b = binary.AppendUvarint(b, uint64(r.From-at))   //nolint:gosec // Ranges are in order.
		b = binary.AppendUvarint(b, uint64(r.To-r.From)) //nolint:gosec // Ranges are not empty.
		at = r.To
	}
	return b
}

func decodePosition(value []byte) (inputPosition, error) {
	b, err := statestore.Body(value)
	if err != nil {
		return inputPosition{}, fmt.Errorf("read the position record: %w", err)
	}
	var p inputPosition
	if len(b) < 20 {
		return inputPosition{}, errPositionRecord
	}
	copy(p.TopicID[:], b)
	p.Partitions = int32(binary.BigEndian.Uint32(b[16:])) //nolint:gosec // Checked below.
	d := uvarints{b: b[20:]}
	p.Next = d.next()
	n := d.next()
	if n > maxDoneRanges {
		return inputPosition{}, errPositionRecord
	}
	at := p.Next
	for range n {
		from := d.advance(at)
		to := d.advance(from)
		if d.bad || to <= from {
			return inputPosition{}, errPositionRecord
		}
		p.Done = append(p.Done, offsetRange{From: from, To: to})
		at = to
	}
	if d.bad || len(d.b) > 0 || p.Partitions <= 0 {
		return inputPosition{}, errPositionRecord
	}
	return p, nil
}

// uvarints reads numbers that fit an int64; bad is set by the first that does not.
type uvarints struct {
	b   []byte
	bad bool
}

func (d *uvarints) next() int64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > 1<<63-1 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int64(v)
}

func (d *uvarints) advance(from int64) int64 {
	v := d.next()
	if v > 1<<63-1-from {
		d.bad = true
		return from
	}
	return from + v
}
