package consumer

import (
	"runtime"

	"github.com/lathe-run/lathe/internal/statestore"
)

// waker tells those who wait for a cycle that it is committed, on a goroutine of its own, so that the next cycle is on its way
// meanwhile. A cycle may settle hundreds of turns. If all of them could run at once, what the next cycle sends and receives would
// queue behind their work at each hop; so the others run after each that is told. The processors stay as busy, and a cycle is shorter.
type waker chan statestore.Waiting

// wakeAhead is how many cycles may be settled before those who wait for the first are told.
const wakeAhead = 4

// run tells until the waker is closed.
func (w waker) run() {
	for waiting := range w {
		for _, settled := range waiting {
			settled(nil)
			runtime.Gosched()
		}
	}
}
