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
	b, r, zombie, second := newZombie(t)
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
