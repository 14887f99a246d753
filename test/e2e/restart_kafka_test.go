//go:build kafka

package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// restartLimit is how long a worker may take from its start to its first call.
const restartLimit = 3 * time.Second

// TestRestart_MakesItsNextCallWithinThreeSeconds kills a worker with -9 and starts it again with its instance id, under a
// session of 45 s that would otherwise have to end first.
//
//nolint:paralleltest // It measures.
func TestRestart_MakesItsNextCallWithinThreeSeconds(t *testing.T) {
	b := newBed(t, newCluster(t))
	b.settings["LATHE_SESSION_TIMEOUT"] = "45s"
	b.createTurns()
	b.sendManyHeld()
	first := b.start("w-0")
	r := b.reader()
	b.eventually("calls run on every partition", func() bool { return len(b.begun()) == 4*turnPartitions })
	first.kill()
	second := b.start("w-0")
	took := b.firstCallOf(second)
	t.Logf("the first call came %s after the start", took.Round(time.Millisecond))
	if took > restartLimit {
		t.Errorf("the first call came %s after the start, want at most %s", took, restartLimit)
	}
	b.releaseMany()
	r.allEnded()
	b.awaitCommitted()
	second.drain()
	r.check()
}

// sendManyHeld sends turns that wait in a reading call, four to a partition.
func (b *bed) sendManyHeld() {
	b.Helper()
	for p := range int32(turnPartitions) {
		for n := range 4 {
			b.send(fmt.Sprintf("wait-%d-%d", p, n), b.keyNumber(p, n))
		}
	}
}

// keyNumber is the n-th session whose partition is p.
func (b *bed) keyNumber(p int32, n int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("s-%d", i); partitionOf(key) == p {
			if n--; n < 0 {
				return key
			}
		}
	}
}

func (b *bed) releaseMany() {
	b.Helper()
	for _, s := range b.sent {
		b.release(s.id)
	}
}

// firstCallOf waits for the first call of a process and returns how long after its start it came.
func (b *bed) firstCallOf(p *process) time.Duration {
	b.Helper()
	var at time.Time
	b.eventually("the worker "+p.Name+" makes a call", func() (ok bool) {
		at, ok = b.firstBegunBy(p)
		return ok
	})
	return at.Sub(p.Began)
}

// TestRestart_UnderTheConsumerProtocolWaitsForTheOldSession kills a worker whose instance id the group keeps until its session
// has ended (UNRELEASED_INSTANCE_ID): the next process waits, lives, is not ready, does not exit, and then goes on.
func TestRestart_UnderTheConsumerProtocolWaitsForTheOldSession(t *testing.T) {
	t.Parallel()
	c := kafkatest.Private(t, kafkatest.Config{Properties: map[string]string{"group.consumer.session.timeout.ms": "8000"}})
	b := newBed(t, &cluster{addrs: c.Addrs(), real: true})
	b.settings["LATHE_GROUP_PROTOCOL"], b.settings["LATHE_SESSION_TIMEOUT"] = "consumer", "8s"
	b.createTurns()
	b.send("wait-1", "ann")
	first := b.start("w-0")
	r := b.reader()
	b.awaitBegun("wait-1/0/0")
	first.kill()
	b.send("read-1", "ben")
	second := b.start("w-0")
	b.eventually("the second worker starts", func() bool { return second.logged("worker starts") != nil })
	waited := 0
	b.eventually("the old session ends", func() bool {
		ready, why := second.probe("/readyz")
		live, _ := second.probe("/livez")
		if live != 200 {
			t.Fatalf("a worker that waits for its instance id is not live\n%s", second.tail())
		}
		if ready != 200 {
			waited++
			if waited == 1 {
				t.Logf("not ready: %s", why)
			}
		}
		return ready == 200
	})
	if waited == 0 {
		t.Error("the worker was ready at once: the group no longer keeps a killed static member, so say so in the docs")
	}
	took := b.firstCallOf(second)
	t.Logf("under the consumer protocol the first call came %s after the start, with a session of 8 s", took.Round(time.Millisecond))
	b.release("wait-1")
	r.allEnded()
	b.awaitCommitted()
	second.drain()
	r.check()
}

// TestTransactionVersion1_KeepsThePromises runs the core on a cluster that does not have KIP-890's second part.
func TestTransactionVersion1_KeepsThePromises(t *testing.T) {
	t.Parallel()
	c := kafkatest.Private(t, kafkatest.Config{TransactionVersion: 1})
	on := &cluster{addrs: c.Addrs(), real: true}
	for _, trap := range []string{"kill:after:offsets:2", "kill:before:end:1", "kill:after:end:3", "kill:after:flush:2"} {
		t.Run(trap, func(t *testing.T) {
			t.Parallel()
			crashAndGoOn(t, on, trap)
		})
	}
}

// TestThreeBrokers_KeepThePromises runs the core where partitions have to be announced.
func TestThreeBrokers_KeepThePromises(t *testing.T) {
	t.Parallel()
	on := threeBrokers(t)
	for _, trap := range []string{"kill:after:announce:2", "kill:before:end:2", "kill:after:end:1"} {
		t.Run(trap, func(t *testing.T) {
			t.Parallel()
			crashAndGoOn(t, on, trap)
		})
	}
}

// TestConsumerProtocol_CrashAndDrain lets a dynamic member of the consumer protocol crash, and the next go on.
func TestConsumerProtocol_CrashAndDrain(t *testing.T) {
	t.Parallel()
	c := kafkatest.Private(t, kafkatest.Config{Properties: map[string]string{"group.consumer.session.timeout.ms": "6000"}})
	b := newBed(t, &cluster{addrs: c.Addrs(), real: true})
	b.settings["LATHE_GROUP_PROTOCOL"] = "consumer"
	b.createTurns()
	b.sendMixed()
	b.start("w-0", "LATHE_INSTANCE_ID=", envSignals+"=kill:after:offsets:2").awaitKilled()
	second := b.start("w-0", "LATHE_INSTANCE_ID=")
	r := b.reader()
	r.allEnded()
	b.send("wait-1", "ann", schemas.StatusCompleted)
	b.release("wait-1")
	r.allEnded()
	b.sendAgain()
	b.awaitCommitted()
	second.drain()
	r.check()
}

// crashAndGoOn sends turns, has the worker killed by a trap, starts it again, and sends all again.
func crashAndGoOn(t *testing.T, on *cluster, trap string) {
	t.Helper()
	b := newBed(t, on)
	b.createTurns()
	b.sendMixed()
	b.start("w-0", envSignals+"="+trap).awaitKilled()
	second := b.start("w-0")
	r := b.reader()
	r.allEnded()
	b.sendAgain()
	b.awaitCommitted()
	second.drain()
	r.check()
}

// firstBegunBy is when the first call began in a process.
func (b *bed) firstBegunBy(p *process) (time.Time, bool) {
	b.Helper()
	for _, e := range b.ledger() {
		if e.What == "begin" && e.PID == p.PID() {
			return e.At, true
		}
	}
	return time.Time{}, false
}
