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
	b, r, zombie, second := newZombie(t, (*bed).shortSession)
	zombie.signal(syscall.SIGCONT)
	zombie.signal(syscall.SIGTERM)
	t.Logf("the zombie ended with %d", zombie.wait())
	began := time.Now()
	b.endEverywhere(r, "both-late-", began)
	t.Logf("turns on all partitions ended %s after the zombie", time.Since(began).Round(time.Millisecond))
	b.awaitCommitted()
	second.drain()
	r.check()
}

// TestZombie_OfTwoMinutesCommitsNothingAndStartsNothing stops a worker for two minutes, with the session and the transactions of the
// defaults, while another works on.
func TestZombie_OfTwoMinutesCommitsNothingAndStartsNothing(t *testing.T) {
	t.Parallel()
	b, r, zombie, second := newZombie(t, func(*bed) {})
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for i := int32(0); time.Since(zombie.stopped) < 2*time.Minute; i++ {
		<-every.C
		b.send(named("write-meanwhile-", i), keyFor(i%turnPartitions))
		r.allEnded()
	}
	b.wake(r, zombie, second)
}
