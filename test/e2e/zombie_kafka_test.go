//go:build kafka

package e2e_test

import (
	"syscall"
	"testing"
	"time"
)

// TestZombie_ThatDrainsAsItWakesUpHoldsNobodyBack stops a static member for longer than its session and drains it the moment it
// is continued: the other worker has everything within a few sessions.
func TestZombie_ThatDrainsAsItWakesUpHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.shortSession()
	b.createTurns()
	b.sendAcross()
	zombie := b.start("w-0")
	r := b.reader()
	b.awaitHeld()
	b.settledWrites(r)
	zombie.signal(syscall.SIGSTOP)
	zombie.awaitStopped()
	second := b.start("w-1")
	b.releaseAcross()
	r.allEnded()
	zombie.signal(syscall.SIGCONT)
	zombie.signal(syscall.SIGTERM)
	t.Logf("the zombie ended with %d", zombie.wait())
	began := time.Now()
	for p := range int32(turnPartitions) {
		b.send(named("both-late-", p), keyFor(p))
	}
	r.allEnded()
	took := time.Since(began)
	t.Logf("turns on all partitions ended %s after the zombie", took.Round(time.Millisecond))
	if took > 30*time.Second {
		t.Errorf("turns on all partitions ended %s after the zombie, want at most five sessions", took)
	}
	b.awaitCommitted()
	second.drain()
	r.check()
}
