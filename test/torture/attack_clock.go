package torture

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lathe-run/lathe/test/torture/worker"
)

// clockAttack moves the clock of a worker by seconds, minutes or days, forward or back, and sets it right again.
func clockAttack() Attack {
	return Attack{Name: "clock", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m := b.Fleet.Pick(rng)
		by := []time.Duration{time.Second, 2 * time.Minute, time.Hour, 48 * time.Hour}[rng.IntN(4)]
		by += between(rng, 0, by)
		if rng.IntN(2) == 0 {
			by = -by
		}
		d, restart := between(rng, time.Second, 6*time.Second), rng.IntN(2) == 0
		b.Say("the clock of %s is off by %s for %s; killed meanwhile: %v", m.Name, by.Round(time.Millisecond), d.Round(time.Millisecond), restart)
		if err := worker.SetClock(m.Switches(), by); err != nil {
			return err
		}
		if err := pause(ctx, d/2); err != nil {
			return err
		}
		if restart {
			m.Kill()
			if err := m.Start(); err != nil {
				return err
			}
		}
		if err := pause(ctx, d/2); err != nil {
			return err
		}
		return worker.SetClock(m.Switches(), 0)
	}}
}
