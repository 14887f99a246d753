// Package spare has what costs little for work that is over in a moment.
//
// Goroutines run short tasks and are used again: a new goroutine starts with a small stack, which is copied each time that it grows;
// one that has run a task before has the stack that such tasks need. A Timeout is a context that is made when somebody asks for it.
package spare

import "sync"

// Goroutines runs each task on a goroutine of its own and keeps some that are done for later tasks. It is safe for concurrent
// use. The zero value keeps none.
type Goroutines struct {
	// Keep is how many goroutines wait for a task at most. It must not be changed once Go was called.
	Keep int

	wg sync.WaitGroup
	mu struct {
		sync.Mutex
		closed bool
		idle   []chan func()
	}
}

// Go runs f on a goroutine and returns at once. A panic of f ends the process, as it does on any goroutine; runtime.Goexit ends
// only the goroutine.
func (g *Goroutines) Go(f func()) {
	if w := g.take(); w != nil {
		w <- f
		return
	}
	g.wg.Go(func() { g.work(f) })
}

// take gives the goroutine that became idle last, whose stack is the likeliest to be in the cache, or nil.
func (g *Goroutines) take() chan func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.mu.idle) - 1
	if last < 0 {
		return nil
	}
	w := g.mu.idle[last]
	g.mu.idle = g.mu.idle[:last]
	return w
}

func (g *Goroutines) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !g.wait(next) {
			return
		}
		f = <-next
	}
}

func (g *Goroutines) wait(next chan func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed || len(g.mu.idle) >= g.Keep {
		return false
	}
	g.mu.idle = append(g.mu.idle, next)
	return true
}

// Close ends the goroutines that wait, and each of the others when its task is done. It does not wait for them.
func (g *Goroutines) Close() {
	g.mu.Lock()
	idle := g.mu.idle
	g.mu.closed, g.mu.idle = true, nil
	g.mu.Unlock()
	for _, w := range idle {
		close(w)
	}
}

// Wait returns when every task is done and, after Close, every goroutine has ended. No task may be given meanwhile.
func (g *Goroutines) Wait() { g.wg.Wait() }
