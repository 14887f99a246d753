package e2e_test

import (
	"syscall"
	"testing"

	"github.com/lathe-run/lathe/schemas"
)

// shortSession makes the group notice soon that a worker is gone.
func (b *bed) shortSession() {
	b.settings["LATHE_SESSION_TIMEOUT"] = "6s"
	b.settings["LATHE_TRANSACTION_TIMEOUT"] = "5s"
}

// sendAcross sends turns to every partition: one that waits in a reading call, one that is in a call that may run only once,
// and ones that queue behind them.
func (b *bed) sendAcross() {
	b.Helper()
	for p := range int32(turnPartitions) {
		b.send(named("wait-", p), keyFor(p))
		b.send(named("read-", p), keyFor(p))
		b.send(named("write-", p), keyFor(p)+"-other")
	}
	b.send("hold-1", "held", schemas.StatusIndeterminate)
}

func (b *bed) releaseAcross() {
	b.Helper()
	for p := range int32(turnPartitions) {
		b.release(named("wait-", p))
	}
	b.release("hold-1")
}

func (b *bed) awaitHeld() {
	b.Helper()
	for p := range int32(turnPartitions) {
		b.awaitBegun(named("wait-", p) + "/0/0")
	}
	b.awaitBegun("hold-1/0/0")
}

// TestTakeover_ByAnotherInstanceRunsNothingTwice kills a worker in the middle of its turns; a second one with another instance
// id has its partitions when the first one's session has ended.
func TestTakeover_ByAnotherInstanceRunsNothingTwice(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.shortSession()
	b.createTurns()
	b.sendAcross()
	first := b.start("w-0")
	r := b.reader()
	b.awaitHeld()
	b.settledWrites(r)
	second := b.start("w-1").ready()
	first.kill()
	b.releaseAcross()
	r.allEnded()
	b.sendAgain()
	b.awaitCommitted()
	second.drain()
	r.check()
}

// settledWrites waits until the turns that only change something have ended, so that none of them can be in doubt.
func (b *bed) settledWrites(r *reader) {
	b.Helper()
	r.until("the writing turns end", func() bool {
		for p := range int32(turnPartitions) {
			if r.count(named("write-", p), schemas.TypeTurnEnd) == 0 {
				return false
			}
		}
		return true
	})
}

// newZombie stops a worker with calls under way for longer than its session, and lets another take its partitions over and end all
// turns: its calls return at once, and so do the zombie's when it wakes up.
func newZombie(t *testing.T, set func(*bed)) (b *bed, r *reader, zombie, second *process) {
	t.Helper()
	b = newBed(t, newCluster(t))
	set(b)
	b.createTurns()
	b.sendAcross()
	zombie, r = b.start("w-0"), b.reader()
	b.awaitHeld()
	b.settledWrites(r)
	zombie.signal(syscall.SIGSTOP)
	zombie.awaitStopped()
	second = b.start("w-1")
	b.releaseAcross()
	r.allEnded()
	return b, r, zombie, second
}

// TestZombie_CommitsNothingAndStartsNothing stops a worker for longer than its session, lets another take its partitions over,
// and continues it: what it had under way is not seen, it starts no call for a turn that is not its own, and it works on.
func TestZombie_CommitsNothingAndStartsNothing(t *testing.T) {
	t.Parallel()
	b, r, zombie, second := newZombie(t, (*bed).shortSession)
	b.wake(r, zombie, second)
}

// wake continues a zombie: neither an event nor a call may come of it, and it must share the work again.
func (b *bed) wake(r *reader, zombie, second *process) {
	b.Helper()
	r.toEnd()
	events, calls := len(r.outputs), len(b.begun())
	zombie.signal(syscall.SIGCONT)
	b.eventually("the zombie hears that its partitions are lost", func() bool { return zombie.logged("partitions are lost") != nil })
	zombie.awaitPartitions()
	r.toEnd()
	if len(r.outputs) != events || len(b.begun()) != calls {
		b.Errorf("after the zombie woke up: %d events and %d calls, want %d and %d", len(r.outputs), len(b.begun()), events, calls)
	}
	for p := range int32(turnPartitions) {
		b.send(named("both-late-", p), keyFor(p))
	}
	r.allEnded()
	b.awaitCommitted()
	zombie.drain()
	b.send("read-last", "ann") // The second worker has everything again.
	r.allEnded()
	b.awaitCommitted()
	second.drain()
	r.check()
}

// TestOneInstanceIDTwice_NothingRunsTwice stops a worker between its TxnOffsetCommit and its EndTxn, starts a second process
// with the same instance id, and continues the first after the second has committed a cycle of the same number.
func TestOneInstanceIDTwice_NothingRunsTwice(t *testing.T) {
	t.Parallel()
	for point, stopped := range map[string]uint64{"after:offsets:1": 1, "before:end:2": 2, "after:offsets:3": 3, "after:end:2": 2} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.createTurns()
			b.sendMixed()
			first := b.start("w-0", envSignals+"=stop:"+point, "LATHE_DATA_DIR="+b.dir+"/first")
			first.awaitStopped()
			second := b.start("w-0")
			r := b.reader()
			r.allEnded()
			r.toEnd()
			events, calls := len(r.outputs), len(b.ledger())
			b.wantCycle(stopped)
			first.signal(syscall.SIGCONT)
			code := first.wait()
			t.Logf("the first process ended with %d", code)
			if code <= 0 {
				t.Errorf("the first process ended with %d, want a failure\n%s", code, first.tail())
			}
			b.send("both-late", "ann")
			r.allEnded()
			b.sendAgain()
			b.awaitCommitted()
			second.drain()
			r.toEnd()
			late := len(r.events("both-late"))
			if got := len(r.outputs); got != events+late {
				t.Errorf("%d events, want %d of before and %d of the late turn", got, events, late)
			}
			// Until it hears from the group the first process may still run what it had announced: a call that may run only once
			// is in doubt for the second then, and runs here alone. The oracle counts them.
			own := 0
			for _, e := range b.ledger()[calls:] {
				if e.PID == first.PID() {
					own++
					t.Logf("the first process went on: %s %s of %s", e.Key, e.What, e.Tool)
				}
			}
			if got := len(b.ledger()); got != calls+own+8 {
				t.Errorf("%d lines in the ledger, want %d of before, %d of the first process and 8 of the late turn", got, calls, own)
			}
			r.check()
		})
	}
}
