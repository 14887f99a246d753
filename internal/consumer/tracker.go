package consumer

import "slices"

// offsetRange holds the offsets from From up to, not including, To.
type offsetRange struct{ From, To int64 }

// tracker knows which offsets of a partition are done. An offset is delivered once, in log order with gaps where the log has
// them, and is done when the effect that completes it was committed. The offset to commit is the end of the run of done offsets
// at the front: whatever lies below it will never be seen again.
//
// What is kept is the offsets that are not done, which the window bounds; the done ones beyond the front are the spaces between
// them. So a slow turn costs one entry, however many overtake it. It is not safe for concurrent use.
type tracker struct {
	// open holds the offsets that are delivered and not done, in order. Entries that are done stay as holes until they are at
	// the front, or are the greater part.
	open  []openOffset
	holes int
	// end is the offset after the last one delivered.
	end int64
	// planned are the indexes into open that Plan has marked.
	planned []int64
	// restored are the ranges that were done beyond the start, as the state had them, not yet below end.
	restored []offsetRange
}

type openOffset struct {
	offset int64
	state  offsetState
}

type offsetState uint8

const (
	offsetOpen offsetState = iota
	// offsetPlanned offsets are done if the cycle under way is committed.
	offsetPlanned
	offsetDone
)

// newTracker begins at an offset, with what was done beyond it.
func newTracker(start int64, done []offsetRange) *tracker {
	t := &tracker{end: start}
	for _, r := range done {
		if r.To > start {
			t.restored = append(t.restored, offsetRange{From: max(r.From, start), To: r.To})
		}
	}
	t.absorb()
	return t
}

// Deliver takes the next offset of the log. It reports false when the offset is not to be handled: it was done before, or it
// comes again.
func (t *tracker) Deliver(offset int64) bool {
	if offset < t.end {
		return false
	}
	for len(t.restored) > 0 && t.restored[0].To <= offset {
		t.restored = t.restored[1:]
	}
	t.end = offset + 1
	if len(t.restored) > 0 && t.restored[0].From <= offset {
		return false
	}
	t.open = append(t.open, openOffset{offset: offset})
	return true
}

// absorb moves the end over ranges that touch it, when nothing is open.
func (t *tracker) absorb() {
	for len(t.open) == 0 && len(t.restored) > 0 && t.restored[0].From <= t.end {
		t.end = max(t.end, t.restored[0].To)
		t.restored = t.restored[1:]
	}
}

// Open is how many offsets are delivered and not known to be done.
func (t *tracker) Open() int { return len(t.open) - t.holes }

// Plan gives what to commit if these offsets are done as well: the offset, and the ranges done beyond it. It changes nothing that
// Revert does not undo. Offsets that are not open are ignored.
func (t *tracker) Plan(offsets []int64) (next int64, done []offsetRange) {
	for _, o := range offsets {
		if i, ok := t.find(o); ok && t.open[i].state == offsetOpen {
			t.open[i].state = offsetPlanned
			t.planned = append(t.planned, o)
		}
	}
	return t.position()
}

// position walks the open offsets: the first that is neither done nor planned is where to begin again, and what lies between one
// of those and the next is done.
func (t *tracker) position() (next int64, done []offsetRange) {
	last := int64(-1)
	for _, o := range t.open {
		if o.state != offsetOpen {
			continue
		}
		if last < 0 {
			next = o.offset
		} else if o.offset > last+1 {
			done = append(done, offsetRange{From: last + 1, To: o.offset})
		}
		last = o.offset
	}
	if last < 0 {
		next = t.end
	} else if t.end > last+1 {
		done = append(done, offsetRange{From: last + 1, To: t.end})
	}
	for _, r := range t.restored {
		done = joinRange(done, offsetRange{From: max(r.From, t.end), To: r.To})
	}
	if len(done) > 0 && done[0].From <= next {
		next, done = done[0].To, done[1:]
	}
	return next, done
}

func joinRange(ranges []offsetRange, r offsetRange) []offsetRange {
	if n := len(ranges); n > 0 && ranges[n-1].To >= r.From {
		ranges[n-1].To = max(ranges[n-1].To, r.To)
		return ranges
	}
	return append(ranges, r)
}

// Confirm makes done what Plan has marked.
func (t *tracker) Confirm() { t.resolve(offsetDone) }

// Revert makes open again what Plan has marked.
func (t *tracker) Revert() { t.resolve(offsetOpen) }

func (t *tracker) resolve(to offsetState) {
	for _, o := range t.planned {
		if i, ok := t.find(o); ok && t.open[i].state == offsetPlanned {
			t.open[i].state = to
			if to == offsetDone {
				t.holes++
			}
		}
	}
	t.planned = t.planned[:0]
	if t.holes > 32 && t.holes > len(t.open)/2 || t.holes == len(t.open) {
		t.open = slices.DeleteFunc(t.open, func(o openOffset) bool { return o.state == offsetDone })
		t.holes = 0
	}
	t.absorb()
}

func (t *tracker) find(offset int64) (int, bool) {
	return slices.BinarySearchFunc(t.open, offset, func(e openOffset, o int64) int {
		switch {
		case e.offset < o:
			return -1
		case e.offset > o:
			return 1
		}
		return 0
	})
}
