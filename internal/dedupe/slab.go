package dedupe

import (
	"strings"
	"sync/atomic"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
)

// slab hands out pieces of larger pieces of memory. It never writes to a piece again once it has handed it out.
type slab[T any] struct {
	// chunk is how long the larger pieces are at most, save those that one piece fills alone.
	chunk int
	// expected is how much is likely to be needed in all, used how much was.
	expected, used int
	free           []T
}

// take returns an empty slice with room for n.
func (s *slab[T]) take(n int) []T {
	if n > len(s.free) {
		if n >= s.chunk { // The rest of the chunk is still good for smaller pieces.
			s.used += n
			return make([]T, 0, n)
		}
		s.used += len(s.free) // It is left over.
		s.free = make([]T, s.next(n))
	}
	s.used += n
	piece := s.free[:0:n]
	s.free = s.free[n:]
	return piece
}

// next is how long the next chunk is: no longer than what is still expected, so that little of the last one is left over.
func (s *slab[T]) next(n int) int {
	if left := s.expected - s.used; left > n {
		return min(left, s.chunk)
	}
	return max(n, s.chunk/4)
}

// textSlab makes strings that share larger pieces of memory.
type textSlab struct{ b strings.Builder }

// textChunk is about what the ids of a turn's events take.
const textChunk = 512

// room makes room for a string of n bytes, and returns where it begins.
func (t *textSlab) room(n int) int {
	if t.b.Cap()-t.b.Len() < n {
		t.b.Reset() // Strings that were made keep what they are made of.
		t.b.Grow(max(n, textChunk))
	}
	return t.b.Len()
}

// join makes a string of others.
func (t *textSlab) join(a, b, c, d string) string {
	start := t.room(len(a) + len(b) + len(c) + len(d))
	t.b.WriteString(a)
	t.b.WriteString(b)
	t.b.WriteString(c)
	t.b.WriteString(d)
	return t.b.String()[start:]
}

// key is ref.Key.
func (t *textSlab) key(turnID string, ref fact.Ref) string {
	var digits [40]byte
	place := ref.AppendPlace(digits[:0])
	start := t.room(len(turnID) + len(place))
	t.b.WriteString(turnID)
	t.b.Write(place)
	return t.b.String()[start:]
}

// memory is what facts and events are made of. A turn has dozens of small pieces, all of which live until they are committed.
type memory struct {
	// small has what is short, such as the values of headers, and facts that are no part of the transcript; events has the values of
	// events. A turn that waits for its model keeps the last chunk of each alive, so headers must not keep events.
	small, events slab[byte]
	headers       slab[statestore.Header]
	late          slab[lateFrame]
	texts         textSlab
}

// sizes are how much memory turns need, as far as earlier ones tell. They only say how much is made at once.
type sizes struct {
	small, events, headers, late, transcript atomic.Int64
}

// expect gives a new turn its memory.
func (s *sizes) expect(m *memory) {
	m.small.chunk, m.small.expected = 2<<10, int(s.small.Load())
	m.events.chunk, m.events.expected = 4<<10, int(s.events.Load())
	m.headers.chunk, m.headers.expected = 48, int(s.headers.Load())
	m.late.chunk, m.late.expected = 16, int(s.late.Load())
}

// learn notes what a turn needed.
func (s *sizes) learn(m *memory, transcript int) {
	follow(&s.small, m.small.used+slack)
	follow(&s.events, m.events.used+slack)
	follow(&s.headers, m.headers.used)
	follow(&s.late, m.late.used)
	if transcript > 0 { // Else its agent keeps none.
		follow(&s.transcript, transcript+slack)
	}
}

// slack is by how many bytes turns differ that are alike: numbers and times are as long as they are.
const slack = 64

// follow moves a size towards what a turn needed: up fast, since who runs out copies or has a chunk that is too long, down slowly; not at
// once, since one long turn among many says little. Turns that end side by side may undo each other's part, which does no harm.
func follow(size *atomic.Int64, needed int) {
	was, now := size.Load(), int64(needed)
	switch {
	case now > was:
		size.Store(was + (now-was+3)/4)
	case now < was:
		size.Store(was - (was-now+15)/16)
	}
}
