package txn

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/netcut"
)

// wires break at requests of one kind, and count them.
type wires struct {
	*netcut.Wires

	mu  sync.Mutex
	hit int

	// armed holds a token while the next end of a transaction is to be cut; cuts counts those that were.
	armed chan struct{}
	cuts  int
}

func newWires(through netcut.Dial) *wires {
	return &wires{Wires: &netcut.Wires{Through: through}, armed: make(chan struct{}, 1)}
}

// breakAt makes every connection break at requests of key until mend.
func (w *wires) breakAt(key kmsg.Key, how netcut.Cut) {
	w.mu.Lock()
	w.hit = 0
	w.mu.Unlock()
	w.BreakAt(func(k kmsg.Key) netcut.Cut {
		if k != key {
			return netcut.CutNothing
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hit++
		return how
	})
}

func (w *wires) mend() (hits int) {
	w.BreakAt(nil)
	return w.hits()
}

func (w *wires) hits() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hit
}
