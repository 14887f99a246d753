package consumer

import (
	"context"
	"log/slog"
)

// A worker that was stopped for longer than its session, at a moment when it was about to rejoin the group, is told by the answer
// that the group does not know it. The client then joins as a new member and claims what it had. If the others have nothing better
// to say, it is given that again, and nobody tells us that meanwhile somebody else had it: no partition was lost, none is new. What
// we know of them is old, and commits of it would pass, by a member that is current.
//
// So a partition belongs to the member that it was given to, and to no other.

// foreign reports whether the partition was given to who we are no more.
func (p *partition) foreign() bool {
	g := p.w.group()
	if g == nil {
		return false // Not a member any more, which others tell.
	}
	member, _ := g.GroupMetadata()
	return p.member != member
}

// loseForeign lets go of the partitions that were given to an earlier member, and asks for a membership that begins with nothing:
// the client takes them for ours.
func (w *Worker) loseForeign(ctx context.Context) {
	lost := false
	for _, p := range w.all() {
		if !p.foreign() {
			continue
		}
		switch p.is() {
		case stateGone:
		case stateHalted: // The next assignment may do better.
			lost = true
		case stateAssigned, stateRestoring, stateRunning, stateDraining:
			w.log.WarnContext(ctx, "partition was given to an earlier member of the group, which has lost it", p.attr(),
				slog.String("member", p.member))
			p.end(stateGone, ErrLost)
			lost = true
		}
	}
	if lost {
		w.askRejoin()
	}
}
