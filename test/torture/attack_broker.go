package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// brokerSession is after what silence the brokers count one of them as dead (broker.session.timeout.ms).
const brokerSession = 5 * time.Second

var errNoCluster = errors.New("the brokers cannot be attacked")

// brokerAttack makes an attack on the cluster. The cluster is healthy again when it is over.
func brokerAttack(name string, run func(context.Context, *Bed, *kafkatest.Cluster, *rand.Rand) error) Attack {
	return Attack{Name: name, On: OnBrokers, Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		if b.Brokers.Cluster == nil {
			return errNoCluster
		}
		return errors.Join(run(ctx, b, b.Brokers.Cluster, rng), b.Brokers.Cluster.AwaitHealthy(ctx))
	}}
}

func pickBroker(rng *rand.Rand, b *Bed) int { return rng.IntN(len(b.Brokers.Addrs)) }

// brokerKillAttack ends a broker with kill -9 and starts it again on its data.
func brokerKillAttack() Attack {
	return brokerAttack("broker_kill", func(ctx context.Context, b *Bed, c *kafkatest.Cluster, rng *rand.Rand) error {
		i, gone := pickBroker(rng, b), between(rng, 0, 8*time.Second)
		b.Say("kill -9 broker %d, start it after %s", c.ID(i), gone.Round(time.Millisecond))
		c.Kill(i)
		if err := pause(ctx, gone); err != nil {
			return err
		}
		b.log.count(countBrokerRestarts)
		return c.Restart(ctx, i)
	})
}

// brokerStopAttack stops a broker where it is: its connections stay open and nothing answers. Sometimes it is for longer than the
// other brokers wait.
func brokerStopAttack() Attack {
	return brokerAttack("broker_stop", func(ctx context.Context, b *Bed, c *kafkatest.Cluster, rng *rand.Rand) error {
		i, d := pickBroker(rng, b), between(rng, time.Second, 2*brokerSession)
		b.Say("stop broker %d for %s", c.ID(i), d.Round(time.Millisecond))
		return paused(c, i, func() error { return pause(ctx, d) })
	})
}

// paused runs f while a broker is stopped.
func paused(c *kafkatest.Cluster, i int, f func() error) error {
	if err := c.Pause(i); err != nil {
		return err
	}
	return errors.Join(f(), c.Resume(i))
}

// brokerRollAttack restarts all brokers in good order, one after another, as an upgrade does.
func brokerRollAttack() Attack {
	return brokerAttack("broker_roll", func(ctx context.Context, b *Bed, c *kafkatest.Cluster, rng *rand.Rand) error {
		for _, i := range rng.Perm(len(b.Brokers.Addrs)) {
			b.Say("restart broker %d in good order", c.ID(i))
			if err := c.Shutdown(ctx, i); err != nil {
				return err
			}
			if err := c.Restart(ctx, i); err != nil {
				return err
			}
			b.log.count(countBrokerRestarts)
			if err := c.AwaitHealthy(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// leadersAttack moves the leaders of the topics that workers write to and read.
func leadersAttack() Attack {
	return brokerAttack("leaders", func(ctx context.Context, b *Bed, c *kafkatest.Cluster, rng *rand.Rand) error {
		for range 1 + rng.IntN(3) {
			b.Say("move the leaders of all topics")
			if err := c.MoveLeaders(ctx, b.Topic("turns"), b.Topic("changelog"), b.Topic("tool-events"), b.Topic("turn-events")); err != nil {
				return err
			}
		}
		return nil
	})
}

// coordinatorsAttack moves the coordinator of the group and those of one worker's transactions.
func coordinatorsAttack() Attack {
	return brokerAttack("coordinators", func(ctx context.Context, b *Bed, c *kafkatest.Cluster, rng *rand.Rand) error {
		m := b.Fleet.Pick(rng)
		b.Say("move the coordinators of the group and of the transactions of %s", m.Name)
		if err := c.MoveGroupCoordinator(ctx, b.Group()); err != nil {
			return err
		}
		const slots = 3
		for slot := range slots {
			if err := c.MoveTransactionCoordinator(ctx, fmt.Sprintf("%s/%s/%d", b.app, m.Name, slot)); err != nil {
				return err
			}
		}
		return nil
	})
}

// isrAttack takes a broker out of sync. Sometimes the changelog wants all of them for a while, so that nothing can be written.
func isrAttack() Attack {
	return brokerAttack("isr", func(ctx context.Context, b *Bed, c *kafkatest.Cluster, rng *rand.Rand) error {
		i, short, d := pickBroker(rng, b), rng.IntN(2) == 0, between(rng, 500*time.Millisecond, 6*time.Second)
		b.Say("broker %d falls out of sync for %s more; too few are left for the changelog: %v", c.ID(i), d.Round(time.Millisecond), short)
		err := paused(c, i, func() error {
			if err := c.AwaitShrunk(ctx, i); err != nil {
				return err
			}
			if short {
				if err := c.SetTopicConfig(ctx, b.Topic("changelog"), minInSync, "3"); err != nil {
					return err
				}
			}
			return pause(ctx, d)
		})
		if short {
			err = errors.Join(err, c.SetTopicConfig(ctx, b.Topic("changelog"), minInSync, "2"))
		}
		return err
	})
}

const minInSync = "min.insync.replicas"
