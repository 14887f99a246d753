package torture

import (
	"context"
	"math/rand/v2"
	"time"
)

// termAttack asks a worker to stop in the middle of its turns, and starts it again.
func termAttack() Attack {
	return Attack{Name: "term", Graceful: true, Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m, gone := b.Fleet.Pick(rng), between(rng, 0, 3*time.Second)
		b.Say("SIGTERM to %s, start it after %s", m.Name, gone.Round(time.Millisecond))
		m.Stop()
		if err := pause(ctx, gone); err != nil {
			return err
		}
		return m.Start()
	}}
}

// rollAttack restarts all workers one after another, as a deployment does; each keeps its instance id.
func rollAttack() Attack {
	return Attack{Name: "roll", Graceful: true, Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		step := between(rng, 0, 2*time.Second)
		b.Say("restart all workers, %s apart", step.Round(time.Millisecond))
		return roll(ctx, b.Fleet.Members, step, func(*Member) {})
	}}
}

// roll restarts workers one after another; between is called while one is down.
func roll(ctx context.Context, members []*Member, step time.Duration, between func(*Member)) error {
	for _, m := range members {
		m.Stop()
		between(m)
		if err := m.Start(); err != nil {
			return err
		}
		if err := pause(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// scaleAttack goes from all workers to one and back.
func scaleAttack() Attack {
	return Attack{Name: "scale", Graceful: true, Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		stays, alone := rng.IntN(len(b.Fleet.Members)), between(rng, time.Second, 9*time.Second)
		b.Say("scale in to %s, back after %s", b.Fleet.Members[stays].Name, alone.Round(time.Millisecond))
		for i, m := range b.Fleet.Members {
			if i != stays {
				m.Stop()
			}
		}
		if err := pause(ctx, alone); err != nil {
			return err
		}
		return b.Fleet.up()
	}}
}
