package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lathe-run/lathe/test/netcut"
)

var errNoNets = errors.New("the workers' networks cannot be attacked")

// openNets makes a network for each worker.
func openNets(workers, brokers int) ([]*netcut.Net, error) {
	var nets []*netcut.Net
	for range workers {
		n, err := netcut.Open(brokers)
		if err != nil {
			return nil, errors.Join(err, closeNets(nets))
		}
		nets = append(nets, n)
	}
	return nets, nil
}

func closeNets(nets []*netcut.Net) error {
	var errs []error
	for _, n := range nets {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// netAttack makes an attack on the network between one worker and the brokers. It is whole again when the attack is over.
func netAttack(name string, run func(context.Context, *Bed, *Member, *netcut.Net, *rand.Rand) error) Attack {
	return Attack{Name: name, On: OnBrokers, Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		if len(b.Brokers.Nets) == 0 {
			return errNoNets
		}
		m := b.Fleet.Pick(rng)
		n := m.net()
		return errors.Join(run(ctx, b, m, n, rng), n.Heal())
	}}
}

// netCutAttack cuts a worker off from all brokers, or from one, for less or more than its session.
func netCutAttack() Attack {
	return netAttack("net_cut", func(ctx context.Context, b *Bed, m *Member, n *netcut.Net, rng *rand.Rand) error {
		which, d := someBrokers(rng, b), between(rng, 0, 2*sessionTimeout)
		b.Say("cut %s off from %s for %s", m.Name, named(which), d.Round(time.Millisecond))
		n.Cut(which...)
		return pause(ctx, d)
	})
}

// netStallAttack lets nothing through to or from a worker, or neither, while its connections stand.
func netStallAttack() Attack {
	return netAttack("net_stall", func(ctx context.Context, b *Bed, m *Member, n *netcut.Net, rng *rand.Rand) error {
		ways := map[netcut.Way]string{netcut.ToBroker: "to", netcut.ToWorker: "from", netcut.Both: "to and from"}
		way, which := netcut.Way(1+rng.IntN(len(ways))), someBrokers(rng, b) //nolint:gosec // 1 to 3
		d := between(rng, 500*time.Millisecond, transactionTimeout+3*time.Second)
		b.Say("nothing passes between %s %s %s for %s", m.Name, ways[way], named(which), d.Round(time.Millisecond))
		n.Stall(way, which...)
		return pause(ctx, d)
	})
}

// netDelayAttack makes the network of a worker slow.
func netDelayAttack() Attack {
	return netAttack("net_delay", func(ctx context.Context, b *Bed, m *Member, n *netcut.Net, rng *rand.Rand) error {
		by, d := between(rng, 10*time.Millisecond, 400*time.Millisecond), between(rng, 2*time.Second, 8*time.Second)
		b.Say("the network of %s is %s slower each way for %s", m.Name, by.Round(time.Millisecond), d.Round(time.Millisecond))
		n.Delay(by)
		return pause(ctx, d)
	})
}

// endAttack cuts a worker's connection exactly at the request that ends a transaction: the broker never has it, or has it while the
// worker goes on, or has carried it out before the worker knows of any trouble. Sometimes no broker can be reached after it.
func endAttack(name string, when netcut.When) Attack {
	return netAttack(name, func(ctx context.Context, b *Bed, m *Member, n *netcut.Net, rng *rand.Rand) error {
		for range 1 + rng.IntN(3) {
			t := netcut.Trigger{Key: netcut.EndTxn, When: when, Skip: rng.IntN(30), All: rng.IntN(2) == 0}
			d := between(rng, 0, sessionTimeout+2*time.Second)
			b.Say("cut %s at its EndTxn after %d more; all of its network: %v, for %s", m.Name, t.Skip, t.All, d.Round(time.Millisecond))
			if err := endOnce(ctx, n, t, d); err != nil {
				return err
			}
		}
		return nil
	})
}

func endOnce(ctx context.Context, n *netcut.Net, t netcut.Trigger, d time.Duration) error {
	const patience = 15 * time.Second // An idle worker ends no transaction.
	armed := n.Arm(t)
	defer armed.Disarm()
	select {
	case <-armed.Fired():
	case <-time.After(patience):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", context.Cause(ctx))
	}
	if t.All {
		if err := pause(ctx, d); err != nil {
			return err
		}
	}
	return n.Heal()
}

func endLostAttack() Attack     { return endAttack("end_lost", netcut.Before) }
func endSentAttack() Attack     { return endAttack("end_sent", netcut.Sent) }
func endAnsweredAttack() Attack { return endAttack("end_answered", netcut.Answered) }

// someBrokers is one broker, or none named, which means all.
func someBrokers(rng *rand.Rand, b *Bed) []int {
	one, all := pickBroker(rng, b), rng.IntN(3) > 0
	if all {
		return nil
	}
	return []int{one}
}

func named(brokers []int) string {
	if len(brokers) == 0 {
		return "all brokers"
	}
	return fmt.Sprintf("broker %d", brokers[0]+1)
}
