package cli

import (
	"io"
	"time"
)

// progress says how far something has come that takes longer than a second: on a terminal in one line, every second, elsewhere in
// a line every ten.
type progress struct {
	w            io.Writer
	verb, what   string
	person       bool
	n            int
	began, shown time.Time
	visible      bool
}

func newProgress(w io.Writer, verb, what string) *progress {
	now := time.Now()
	return &progress{w: w, verb: verb, what: what, person: isTerminal(w), began: now, shown: now}
}

// step counts one more.
func (p *progress) step() {
	p.n++
	interval := 10 * time.Second
	if p.person {
		interval = time.Second
	}
	now := time.Now()
	if now.Sub(p.shown) < interval {
		return
	}
	p.shown = now
	if !p.person {
		say(p.w, "%s %d %s in %s\n", p.verb, p.n, p.what, now.Sub(p.began).Round(time.Second))
		return
	}
	say(p.w, "\r\x1b[K%s %d %s ...", p.verb, p.n, p.what)
	p.visible = true
}

// clear takes the line away, so that something else can be printed there.
func (p *progress) clear() {
	if p.visible {
		say(p.w, "\r\x1b[K")
		p.visible = false
	}
}
