package dedupe

import "github.com/lathe-run/lathe/internal/statestore"

// slab hands out pieces of larger pieces of memory, which it makes chunk long or, when that is less, as long as what is asked for.
type slab[T any] struct {
	chunk int
	free  []T
}

// take returns an empty slice with room for n.
func (s *slab[T]) take(n int) []T {
	if n > len(s.free) {
		s.free = make([]T, max(n, s.chunk))
	}
	piece := s.free[:0:n]
	s.free = s.free[n:]
	return piece
}

// memory is what facts and events are made of. A turn has dozens of small pieces, all of which live until it is committed.
type memory struct {
	bytes   slab[byte]
	headers slab[statestore.Header]
}

// turnMemory has chunks that hold the facts of a step, and the headers of half a dozen events.
func turnMemory() memory {
	return memory{bytes: slab[byte]{chunk: 2 << 10}, headers: slab[statestore.Header]{chunk: 48}}
}
