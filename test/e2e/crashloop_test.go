package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lathe-run/lathe/schemas"
)

// TestCrashLoop_StopsTheTurnThatKillsItsWorkerAndNoOther has a turn whose tool kills the worker at every start, while the turns of
// other sessions are in flight that are as innocent as they look alike: each time they are started, get nowhere, and die with it.
// It is started three times and then ended; they complete, and so does the next turn of its session.
func TestCrashLoop_StopsTheTurnThatKillsItsWorkerAndNoOther(t *testing.T) {
	t.Parallel()
	for tool, status := range map[string]string{"die_read": schemas.StatusFailed, "die_write": schemas.StatusOutcomeUnknown} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.createTurns()
			guilty := tool + "-1"
			b.send(guilty, "ann", status)
			b.send("hello-next", "ann")
			innocent := b.sendCalm(12)
			var r *reader
			for n := 1; n <= 3; n++ {
				p := b.start("w-0")
				if n < 3 {
					b.awaitAllBegun(innocent, n)
				}
				b.awaitAllBegun([]string{guilty}, n)
				if n == 1 { // What is recorded later would be progress.
					r = b.reader()
					r.until("the first responses are recorded", func() bool { return r.total(schemas.TypeToolStart) == 1+len(innocent) })
				}
				b.release(guilty)
				p.awaitKilled()
				b.must(os.Remove(filepath.Join(b.dir, "release-"+guilty)))
				if n == 2 { // At their last start they get on, one after another.
					for _, id := range innocent {
						b.release(id)
					}
				}
			}
			last := b.start("w-0")
			r.allEnded()
			b.awaitCommitted()
			last.drain()
			r.check()
			if end := r.end(guilty); end.Code != schemas.CodeCrashLoop || end.Status != status {
				t.Errorf("the turn ended %s, %s (%s), want %s, crash_loop", end.Status, end.Code, end.Message, status)
			}
			if got := b.begun()[guilty+"/0/0"]; got != 3 {
				t.Errorf("the turn was started %d times, want 3", got)
			}
		})
	}
}

// sendCalm sends n turns, each in a session of its own, that wait in a reading call.
func (b *bed) sendCalm(n int) []string {
	b.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("calm-%d", i)
		b.send(ids[i], ids[i])
	}
	return ids
}

// total counts the events of a type.
func (r *reader) total(typ string) int {
	n := 0
	for _, o := range r.outputs {
		if o.env.Type == typ {
			n++
		}
	}
	return n
}

// awaitAllBegun waits until the first call of each turn has begun n times.
func (b *bed) awaitAllBegun(turns []string, n int) {
	b.Helper()
	b.eventually(fmt.Sprintf("%v begin for the %d. time", turns, n), func() bool {
		begun := b.begun()
		for _, id := range turns {
			if begun[id+"/0/0"] < n {
				return false
			}
		}
		return true
	})
}

// TestCrashLoop_CleanStopsDoNotCount drains a worker in the middle of a turn as often as it would take to stop it.
func TestCrashLoop_CleanStopsDoNotCount(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.settings["LATHE_DRAIN_BUDGET"] = "200ms"
	b.createTurns()
	b.send("calm-1", "ann")
	for n := 1; n <= 5; n++ {
		p := b.start("w-0")
		b.awaitAllBegun([]string{"calm-1"}, n)
		p.drain()
	}
	b.release("calm-1")
	last := b.start("w-0")
	r := b.reader()
	r.allEnded()
	b.awaitCommitted()
	last.drain()
	r.check()
}
