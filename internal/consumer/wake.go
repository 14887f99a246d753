package consumer

import "github.com/lathe-run/lathe/internal/statestore"

// waker tells those who wait for a cycle that it is committed, one after another on a goroutine of its own, so that the next cycle is
// on its way meanwhile, and what it sends and receives does not queue behind all of their work at each hop.
type waker chan statestore.Waiting

// wakeAhead is how many cycles may be settled before those who wait for the first are told.
const wakeAhead = 4

// run tells until the waker is closed.
func (w waker) run() {
	for waiting := range w {
		waiting.Tell()
	}
}
