package netcut

import "slices"

// When says what becomes of a request at which a connection is cut.
type When uint8

const (
	// Before loses the request: its broker never sees it.
	Before When = iota + 1
	// Sent cuts the worker's side as soon as the whole request was sent on. It is handled, while the worker goes on.
	Sent
	// Answered cuts the worker's side when the broker's answer has come to the proxy, where it is lost. The request was
	// handled before the worker knows of any trouble.
	Answered
)

// EndTxn is the key of the request that ends a transaction.
const EndTxn int16 = 26

// Trigger cuts the connection on which a request of one key comes by, once.
type Trigger struct {
	// Key is the API key of the request.
	Key int16
	// When says what becomes of the request.
	When When
	// Skip lets that many such requests pass first.
	Skip int
	// All cuts the whole net in the same moment, until [Net.Heal], and not only that connection.
	All bool
}

// Armed is a trigger that waits for its request.
type Armed struct {
	net   *Net
	key   int16
	when  When
	all   bool
	fired chan struct{}
	skip  int  // under Net.mu
	done  bool // under Net.mu: it fires, or has
}

// Arm sets a trigger. Several wait side by side; a request is taken by the one that was set first.
func (n *Net) Arm(t Trigger) *Armed {
	a := &Armed{net: n, key: t.Key, when: t.When, all: t.All, skip: t.Skip, fired: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.armed = append(n.mu.armed, a)
	return a
}

// fire cuts what the trigger cuts. Where that is the whole net, nothing can be reached any more when the first connection
// breaks.
func (a *Armed) fire(cut func()) {
	if !a.finish() {
		return
	}
	if a.all {
		a.net.Cut()
	}
	cut()
	close(a.fired)
}

// finish reports whether the trigger had not fired before.
func (a *Armed) finish() bool {
	a.net.mu.Lock()
	defer a.net.mu.Unlock()
	first := !a.done
	a.done = true
	return first
}

// putBack lets a trigger that has not fired wait for the next request.
func (a *Armed) putBack() {
	a.net.mu.Lock()
	defer a.net.mu.Unlock()
	if !a.done && !slices.Contains(a.net.mu.armed, a) {
		a.net.mu.armed = append(a.net.mu.armed, a)
	}
}

// Fired is closed when the connection is cut.
func (a *Armed) Fired() <-chan struct{} { return a.fired }

// Disarm takes the trigger back. If its request is on its way, the answer is still lost, but not all is cut.
func (a *Armed) Disarm() {
	a.net.mu.Lock()
	defer a.net.mu.Unlock()
	a.done = true
	a.net.removeLocked(a)
}

// match takes the trigger that a request of the key fires, if there is one.
func (n *Net) match(key int16) *Armed {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.mu.armed {
		if a.key != key {
			continue
		}
		if a.skip > 0 {
			a.skip--
			continue
		}
		n.removeLocked(a)
		return a
	}
	return nil
}

func (n *Net) removeLocked(a *Armed) {
	n.mu.armed = slices.DeleteFunc(n.mu.armed, func(other *Armed) bool { return other == a })
}
