package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/trap"
)

// sendMixed sends a handful of turns that read, that change something, and both, in sessions.
func (b *bed) sendMixed() {
	b.Helper()
	doubtful := []string{schemas.StatusCompleted, schemas.StatusIndeterminate}
	b.send("read-1", "ann")
	b.send("write-1", "ann", doubtful...)
	b.send("read-2", "ann")
	b.send("both-1", "ben", doubtful...)
	b.send("write-2", "ben", doubtful...)
	b.send("save-1", "cleo")
	b.send("hello-1", "dan")
}

// sendAgain produces every turn once more.
func (b *bed) sendAgain() {
	b.Helper()
	for _, s := range b.sent {
		ev, _ := turn(s.id, s.session)
		b.sendEvent(ev)
	}
}

// TestKilledAtEveryStep kills a worker before and after each step of a commit cycle and starts it again. What it was sent
// is sent twice, once before and once after the crash.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for i, point := range trap.Points() {
		for _, passing := range passings123(newCluster(t), i) {
			t.Run(fmt.Sprintf("%s/%d", point, passing), func(t *testing.T) {
				t.Parallel()
				b := newBed(t, newCluster(t))
				b.createTurns()
				b.sendMixed()
				b.start("w-0", fmt.Sprintf("%s=kill:%s:%d", envSignals, point, passing)).awaitKilled()
				second := b.start("w-0")
				r := b.reader()
				r.allEnded()
				r.toEnd()
				events, calls := len(r.outputs), len(b.ledger())
				b.sendAgain()
				b.awaitCommitted()
				second.drain()
				r.check()
				second.wipedNothing()
				if len(r.outputs) != events || len(b.ledger()) != calls {
					t.Errorf("sent again: %d events and %d lines in the ledger, want %d and %d", len(r.outputs), len(b.ledger()), events, calls)
				}
			})
		}
	}
}

// passings123 are the passings of a point that a worker is killed at: all three on a real broker, one of them on the fake.
func passings123(c *cluster, point int) []int {
	if c.real {
		return []int{1, 2, 3}
	}
	return []int{1 + point%3}
}

// wipedNothing checks that the worker has gone on from whatever the one before had on its disk: after a kill there may be nothing
// yet, but nothing that is there may be thrown away.
func (p *process) wipedNothing() {
	p.Helper()
	lines := p.allLogged("partition is restored")
	if len(lines) < turnPartitions {
		p.Errorf("%d restores were reported, want %d", len(lines), turnPartitions)
	}
	for _, l := range lines {
		if how := l["how"]; how != "resumed from local state" && how != "read from the start because there is no local state" {
			p.Errorf("after a kill a partition was %v", how)
		}
	}
}

// TestKilled_ResumesFromItsDiskAndReadsOnlyTheTail kills a worker that has worked for longer than it leaves its disk unsynced.
func TestKilled_ResumesFromItsDiskAndReadsOnlyTheTail(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	first, r := b.start("w-0").ready(), b.reader()
	began := time.Now()
	for i := int32(0); time.Since(began) < 3*time.Second; i++ {
		b.send(named("write-", i), keyFor(i%turnPartitions))
		r.allEnded()
	}
	first.kill()
	second := b.start("w-0").ready()
	read := int64(0)
	for _, l := range second.allLogged("partition is restored") {
		if how := l["how"]; how != "resumed from local state" {
			t.Errorf("after a kill a partition was %v", how)
		}
		read += int64(l["records"].(float64))
	}
	ends, err := b.adm.ListEndOffsets(b.ctx, b.changelog())
	b.must(err)
	all := int64(0)
	ends.Each(func(o kadm.ListedOffset) { all += o.Offset })
	t.Logf("%d of %d offsets were read again", read, all)
	if read > all*2/3 {
		t.Errorf("%d of %d offsets of the changelog were read again", read, all)
	}
	b.send("hello-last", "ann")
	r.allEnded()
	b.awaitCommitted()
	second.drain()
	r.check()
}
