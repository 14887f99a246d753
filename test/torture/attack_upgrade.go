package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

var errNoNext = errors.New("there is no worker of the next release: build bin/torture-next with the tag next_release, as make torture does")

// upgradeAttack rolls workers to the next release or back, all of them or one. Until it comes again both share the group, and what
// one has left on its disk is found by the other.
func upgradeAttack() Attack {
	return Attack{Name: "upgrade", Graceful: true, Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		if b.cfg.Next == "" {
			return errNoNext
		}
		one, step := b.Fleet.Pick(rng), between(rng, 0, 2*time.Second)
		members := b.Fleet.Members
		if rng.IntN(2) == 0 {
			members = []*Member{one}
		}
		return roll(ctx, members, step, func(m *Member) {
			b.Say("%s goes to the other release", m.Name)
			m.turnRelease()
		})
	}}
}
