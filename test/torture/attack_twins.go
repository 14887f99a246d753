package torture

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lathe-run/lathe/test/internal/oracle"
)

// twinsAttack starts a second process with the instance id of a worker, with a data directory of its own or with the same one.
func twinsAttack() Attack {
	return Attack{Name: "twins", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m, shared := b.Fleet.Pick(rng), rng.IntN(2) == 0
		data := m.Data() + "-twin"
		if shared {
			data = m.Data()
		}
		const limit = time.Minute
		m.Excuse(limit + 10*time.Second)
		twin, err := m.spawn(m.Name+"-twin", data, "")
		if err != nil {
			return err
		}
		b.Say("a second process (%d) with the instance id %s (process %d); same data directory: %v", twin.PID(), m.Name, m.PID(), shared)
		first := m.process()
		ended := func() bool { return m.hasEnded(twin) || first == nil || m.hasEnded(first) }
		if err := until(ctx, limit, ended); err != nil {
			b.log.violation(oracle.Sound, "two processes with the instance id %s both go on after %s (%s)", m.Name, limit, twin.LogPath)
		}
		twinFirst := m.hasEnded(twin)
		if twinFirst {
			b.Say("the second process ended with %d", twin.Code())
		} else {
			b.Say("the first process ended; the second is asked to stop")
			m.Kill() // Its successor would fight with the second process.
			m.await(twin)
		}
		for _, bad := range twin.Faults() {
			b.log.violation(oracle.Sound, "the second process of %s printed %q (%s)", m.Name, bad, twin.LogPath)
		}
		if twinFirst {
			return nil
		}
		return m.Start()
	}}
}
