package app

import (
	"context"
	"sync"
	"time"

	"github.com/lathe-run/lathe/internal/consumer"
)

// probation is where the suspects of the process are until they are seen to get on. One that is given its last start has it alone:
// if the worker dies now, no other suspect loses its last start with it. The others have theirs side by side, and before it.
type probation struct {
	mu struct {
		sync.Mutex
		// together is how many suspects are in that need not be alone, and want in; alone is set while one is in that must be.
		together, waiting int
		alone             bool
		// changed is closed when somebody has left.
		changed chan struct{}
	}
}

// probationLimit is how long a suspect stays without getting on. One that kills does so sooner as a rule, and the others must not
// wait for a slow model for ever.
const probationLimit = 30 * time.Second

func newProbation() *probation {
	p := &probation{}
	p.mu.changed = make(chan struct{})
	return p
}

// enter waits for a place and returns what gives it back, which may be called more than once.
func (p *probation) enter(ctx context.Context, draining <-chan struct{}, last bool) (leave func(), err error) {
	for first := true; ; first = false {
		in, changed := p.try(last, first)
		if in {
			return p.leaver(last), nil
		}
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-draining:
			err = consumer.ErrDraining
		}
		p.giveUp(last)
		return nil, err
	}
}

// try takes a place if there is one. A suspect that is not on its last start is counted as waiting from its first try on.
func (p *probation) try(last, first bool) (in bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case last && !p.mu.alone && p.mu.together+p.mu.waiting == 0:
		p.mu.alone = true
		return true, nil
	case !last && !p.mu.alone:
		p.mu.together++
		if !first {
			p.mu.waiting--
		}
		return true, nil
	case !last && first:
		p.mu.waiting++
	}
	return false, p.mu.changed
}

func (p *probation) giveUp(last bool) {
	if last {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.waiting--
	p.changeLocked()
}

// leaver returns what gives a place back, at the latest when the limit is over.
func (p *probation) leaver(last bool) func() {
	leave := sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if last {
			p.mu.alone = false
		} else {
			p.mu.together--
		}
		p.changeLocked()
	})
	timer := time.AfterFunc(probationLimit, leave)
	return func() {
		timer.Stop()
		leave()
	}
}

func (p *probation) changeLocked() {
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
}
