package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lathe-run/lathe/test/internal/trap"
)

// killAttack ends workers with kill -9, at any moment, sometimes two in a row, and starts them again.
func killAttack() Attack {
	return Attack{Name: "kill", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		times, gone := 1+rng.IntN(3), between(rng, 0, 2*time.Second)
		for range times {
			m := b.Fleet.Pick(rng)
			next := between(rng, 200*time.Millisecond, 3*time.Second)
			b.Say("kill -9 %s (process %d), start it after %s", m.Name, m.PID(), gone.Round(time.Millisecond))
			m.Kill()
			if err := pause(ctx, gone); err != nil {
				return err
			}
			if err := m.Start(); err != nil {
				return err
			}
			if err := pause(ctx, next); err != nil {
				return err
			}
		}
		return nil
	}}
}

// trapAttack has a worker kill itself before or after a step of a commit cycle.
func trapAttack() Attack {
	return Attack{Name: "trap", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m, points := b.Fleet.Pick(rng), trap.Points()
		text := fmt.Sprintf("kill:%s:%d", points[rng.IntN(len(points))], 1+rng.IntN(60))
		b.Say("%s starts anew and dies at %s", m.Name, text)
		kills := b.log.counted(countKills)
		m.Kill()
		if err := m.StartTrapped(text); err != nil {
			return err
		}
		// An idle worker may never come to its trap; it is as good as any other then.
		_ = until(ctx, 15*time.Second, func() bool { return b.log.counted(countKills) > kills+1 })
		return ctx.Err()
	}}
}
