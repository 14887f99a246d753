package torture

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/lathe-run/lathe/test/internal/oracle"
	"github.com/lathe-run/lathe/test/internal/proc"
)

// twinsAttack starts a second process with the instance id of a worker, with a data directory of its own or with the same one.
func twinsAttack() Attack {
	return Attack{Name: "twins", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m, shared := b.Fleet.Pick(rng), rng.IntN(2) == 0
		data := m.Data() + "-twin"
		if shared {
			data = m.Data()
		}
		first := m.process()
		twin, err := m.spawn(m.Name+"-twin", data, "")
		if err != nil {
			return err
		}
		b.Say("a second process (%d) with the instance id %s (process %d); same data directory: %v", twin.PID(), m.Name, m.PID(), shared)
		err = m.outlive(ctx, first, twin)
		for _, bad := range twin.Faults() {
			b.log.violation(oracle.Sound, "the second process of %s printed %q (%s)", m.Name, bad, twin.LogPath)
		}
		return err
	}}
}

// outlive waits until one of two processes with one instance id has ended, and leaves one worker. Under the consumer protocol the
// group keeps the id for the one that has it, and the other waits for it without being ready. It may be the first that waits, if it
// had only just started and the id was still another's.
func (m *Member) outlive(ctx context.Context, first, twin *proc.Process) error {
	b, limit := m.fleet.bed, 45*time.Second
	waits := b.cfg.Protocol == "consumer"
	if waits {
		limit = 2 * sessionTimeout
	}
	both := until(ctx, limit, func() bool { return m.hasEnded(twin) || first == nil || m.hasEnded(first) }) != nil
	isReady := func(p *proc.Process) bool {
		status, _ := p.Probe(ctx, "/readyz")
		return status == http.StatusOK
	}
	switch {
	case m.hasEnded(twin):
		b.Say("the second process ended with %d", twin.Code())
		return nil
	case both && waits && !isReady(twin):
		b.Say("the second process waits for the instance id; it is asked to stop")
		m.await(twin)
		return nil
	case both && waits && !isReady(first):
		b.Say("the first process waits for the instance id, which the second has; it is ended")
	case both:
		b.log.violation(oracle.Sound, "two processes with the instance id %s both go on after %s (%s)", m.Name, limit, twin.LogPath)
	default:
		b.Say("the first process ended; the second is asked to stop")
	}
	m.Kill() // Its successor would fight with the second process.
	m.await(twin)
	return m.Start()
}
