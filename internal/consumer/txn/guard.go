package txn

import "time"

const (
	maxFences   = 3
	fenceWindow = time.Minute
)

// guard notices two processes that take each other's transactional ids for ever. A single fence is nothing: a
// predecessor was slow to die, or a coordinator gave a transaction up.
type guard struct {
	fences []time.Time
}

// fence counts one more and reports whether it is one too many.
func (g *guard) fence(now time.Time) bool {
	for len(g.fences) > 0 && now.Sub(g.fences[0]) > fenceWindow {
		g.fences = g.fences[1:]
	}
	g.fences = append(g.fences, now)
	return len(g.fences) > maxFences
}

// forget starts anew: the group is not healthy, so that fences are to be expected.
func (g *guard) forget() { g.fences = nil }
