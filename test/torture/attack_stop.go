package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/lathe-run/lathe/test/internal/trap"
)

// stopSessionAttack stops a worker for longer than its group session, so that others take its partitions over, and continues it.
func stopSessionAttack() Attack {
	return Attack{Name: "stop_session", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m, d := b.Fleet.Pick(rng), between(rng, sessionTimeout+time.Second, sessionTimeout+3*time.Second)
		b.Say("stop %s for %s, longer than its session", m.Name, d.Round(time.Millisecond))
		m.Signal(syscall.SIGSTOP)
		defer m.Signal(syscall.SIGCONT)
		return pause(ctx, d)
	}}
}

// stopTransactionAttack has a worker stop itself inside a transaction, for longer than the broker keeps it open.
func stopTransactionAttack() Attack {
	return Attack{Name: "stop_transaction", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m, points := b.Fleet.Pick(rng), trap.Points()
		d := between(rng, transactionTimeout+time.Second, transactionTimeout+3*time.Second)
		text := fmt.Sprintf("stop:%s:%d", points[rng.IntN(len(points))], 1+rng.IntN(40))
		b.Say("%s starts anew, stops at %s and goes on after %s, longer than its transaction", m.Name, text, d.Round(time.Millisecond))
		m.Stop()
		if err := m.StartTrapped(text); err != nil {
			return err
		}
		if until(ctx, 15*time.Second, m.Stopped) != nil {
			b.Say("%s was too idle to come to its trap, which must not snap later: it is killed", m.Name)
			m.Kill()
			return m.Start()
		}
		defer m.Signal(syscall.SIGCONT)
		return pause(ctx, d)
	}}
}
