package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Attack is one way to hurt a deployment.
type Attack struct {
	// Name is what TORTURE_ATTACKS knows it by.
	Name string
	// On is what it hurts. Attacks on workers and attacks on brokers run side by side, each kind one after another.
	On Target
	// Graceful says that it only asks workers to stop and go: then no call may be in doubt, and every end must be clean.
	Graceful bool
	// Run does it once and returns when it is over and undone; what it did is told with bed.Say. All that is random about it comes
	// from rng, drawn before anything that takes time, so that a seed gives the same attack again. An error is a fault of the
	// harness, not of a worker.
	Run func(ctx context.Context, b *Bed, rng *rand.Rand) error
}

// Target is what an attack hurts.
type Target int

// The targets.
const (
	OnWorkers Target = iota
	OnBrokers
)

// attacks are all that there are, each in a file of its own.
func attacks() []Attack {
	return []Attack{
		killAttack(), trapAttack(), stopSessionAttack(), stopTransactionAttack(), termAttack(), rollAttack(), scaleAttack(), upgradeAttack(),
		twinsAttack(), corruptAttack(), diskAttack(), clockAttack(), cutAttack(),
		brokerKillAttack(), brokerStopAttack(), brokerRollAttack(), leadersAttack(), coordinatorsAttack(), isrAttack(), statusAttack(),
		netCutAttack(), netStallAttack(), netDelayAttack(), endLostAttack(), endSentAttack(), endAnsweredAttack(),
	}
}

// Names are the names of all attacks.
func Names() []string {
	var out []string
	for _, a := range attacks() {
		out = append(out, a.Name)
	}
	return out
}

func graceful(name string) bool {
	return slices.ContainsFunc(attacks(), func(a Attack) bool { return a.Name == name && a.Graceful })
}

// chosen are the attacks of the run on one target.
func (c Config) chosen(on Target) []Attack {
	return slices.DeleteFunc(attacks(), func(a Attack) bool { return a.On != on || !slices.Contains(c.Attacks, a.Name) })
}

// Say prints what an attack does.
func (b *Bed) Say(format string, args ...any) { b.log.line("  "+format, args...) }

// assault runs attacks on one target, one after another, until ctx ends; the one under way is let to its end. They come in rounds
// in which each comes once, in an order that follows from the seed.
func (b *Bed) assault(ctx context.Context, on Target) error {
	all := b.cfg.chosen(on)
	if len(all) == 0 {
		return nil
	}
	number := streamWorkers
	if on == OnBrokers {
		number = streamBrokers
	}
	order := stream(b.cfg.Seed, number)
	for n := uint64(0); ; n++ {
		if n%uint64(len(all)) == 0 {
			order.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		}
		a := all[n%uint64(len(all))]
		rng := stream(b.cfg.Seed, number+(n+1)*16)
		gap := between(rng, 500*time.Millisecond, 3*time.Second)
		if pause(ctx, gap) != nil {
			return nil //nolint:nilerr // The time of the attacks is over.
		}
		b.log.line("attack %d on %s: %s; %d turns sent, %d ended", n+1, on, a.Name, b.load.turns(), b.reader.ended())
		b.log.count("attack:" + a.Name)
		if err := a.Run(context.WithoutCancel(ctx), b, rng); err != nil {
			return fmt.Errorf("attack %s: %w", a.Name, err)
		}
	}
}

// String is the target's name.
func (t Target) String() string {
	switch t {
	case OnWorkers:
		return "workers"
	case OnBrokers:
		return "brokers"
	}
	return "nothing"
}

// between is a random time between two others.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)))
}

// troubled reports whether brokers are attacked: what a worker cannot commit then, it cannot stop clean with.
func (b *Bed) troubled() bool { return len(b.cfg.chosen(OnBrokers)) > 0 }
