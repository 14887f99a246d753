package dedupe

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// aging runs turns over months beside what should be known of them.
type aging struct {
	*bed

	rnd *rand.Rand
	// ended and said are when each turn, and the last turn of each session, ended.
	ended, said map[string]time.Time
	// running are turns under way, by session.
	running map[string]*Journal
	offset  int64
	// swept is when an expiry was last complete.
	swept time.Time
}

// Turns come and go over months, workers crash and restore from a disk or from nothing, and expiries run in between. At every
// step a turn that ended within its retention is known, a session that was used within its own is whole, and Pebble is the fold
// of the changelog; after an expiry nothing is left that is an hour older.
func TestExpire_AgreesWithACalendarAfterEveryStep(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	for range 6 {
		a := &aging{bed: newAging(t), rnd: rnd, ended: map[string]time.Time{}, said: map[string]time.Time{}, running: map[string]*Journal{}}
		a.close()
		a.fs = vfs.NewCrashableMem()
		a.open()
		for range 250 {
			a.step()
			a.checkCalendar()
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

func (a *aging) step() {
	switch n := a.rnd.IntN(100); {
	case n < 50:
		a.use()
	case n < 55:
		ev := &schemas.TurnEvent{Type: schemas.InputCancel, TurnID: fmt.Sprint("never", a.rnd.IntN(20)), SessionID: "s0"}
		if err := a.store.Cancel(ev, a.offset); err != nil {
			a.t.Fatal(err)
		}
	case n < 75:
		a.setClock(time.Duration(a.rnd.Int64N(int64(4 * day))))
	case n < 90:
		a.store.codec.clock.see(a.cfg.Now())
		now := a.cfg.Now()
		a.expire()
		a.swept = now
	default:
		a.crash()
		return
	}
	if a.rnd.IntN(3) > 0 {
		a.commit()
	}
}

// use goes on with a session: its turn under way ends, or a new one begins, or an old one comes again.
func (a *aging) use() {
	session := fmt.Sprint("s", a.rnd.IntN(5))
	if j := a.running[session]; j != nil {
		a.end(j)
		delete(a.running, session)
		a.ended[j.accepted.TurnID], a.said[session] = a.cfg.Now(), a.cfg.Now()
		return
	}
	a.offset++
	id := fmt.Sprintf("%s-t%d", session, a.rnd.IntN(40))
	j, err := a.store.Accept(a.turnOf(session, id, a.offset))
	if err != nil {
		a.t.Fatalf("Accept(%s): %v", id, err)
	}
	last, before := a.ended[id]
	age := a.cfg.Now().Sub(last)
	if before && j != nil && age < 15*day {
		a.t.Errorf("turn %s ended %s ago and is taken for new", id, age)
	}
	if j == nil && (!before || last.Add(15*day+2*time.Hour).Before(a.swept)) {
		a.t.Errorf("turn %s is known, %s after its end and after an expiry", id, age)
	}
	if j == nil {
		return
	}
	if ended, ok := a.said[session]; ok && a.cfg.Now().Sub(ended) < 30*day && len(j.History()) == 0 {
		a.t.Errorf("session %s has no history %s after its last turn", session, a.cfg.Now().Sub(ended))
	}
	a.running[session] = j
}

// crash kills the worker: what is not committed is lost, the disk keeps some of the rest, and the next worker restores.
func (a *aging) crash() {
	a.commit() // What is known of the world is what was committed.
	a.part.Detach()
	disk := a.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: a.rnd.IntN(101), RNG: a.rnd})
	if err := a.state.Close(); err != nil {
		a.t.Fatalf("Close: %v", err)
	}
	a.fs = disk
	var err error
	if a.state, err = statestore.Open(statestore.Config{Dir: "state", FS: a.fs, RecordBytes: a.cfg.RecordBytes, Age: Age}); err != nil {
		a.t.Fatalf("Open: %v", err)
	}
	if a.rnd.IntN(3) == 0 {
		if err := a.state.Wipe(testPartition); err != nil {
			a.t.Fatal(err)
		}
	}
	pos, _, err := a.state.Position(testPartition)
	if err != nil {
		a.t.Fatal(err)
	}
	for at := int(pos.ChangelogNext); at < len(a.records); {
		n := min(1+a.rnd.IntN(40), len(a.records)-at)
		if err := a.state.Restore(testPartition, a.records[at:at+n], statestore.Position{ChangelogNext: int64(at + n)}); err != nil {
			a.t.Fatal(err)
		}
		at += n
	}
	if err := a.tryAttach(); err != nil {
		a.t.Fatal(err)
	}
	for session, j := range a.running {
		a.running[session] = a.accept(a.turnOf(session, j.accepted.TurnID, j.origin.Offset))
		if !a.running[session].Resumed() {
			a.t.Errorf("turn %s was under way and begins anew", j.accepted.TurnID)
		}
	}
}

// checkCalendar looks at what is stored.
func (a *aging) checkCalendar() {
	a.t.Helper()
	a.commit()
	keys := a.checkFold()
	now := a.cfg.Now()
	for id, at := range a.ended {
		if now.Sub(at) < 15*day && !keys[turnKey(id)] {
			a.t.Errorf("turn %s ended %s ago and is forgotten", id, now.Sub(at))
		}
		if keys[turnKey(id)] && at.Add(15*day+2*time.Hour).Before(a.swept) {
			a.t.Errorf("turn %s ended %s before the last expiry and is still there", id, a.swept.Sub(at))
		}
	}
	for key := range keys {
		session, ok := "", key[:1] == historyLetter
		if ok {
			session = sessionOf(key)[1:]
			session = session[:len(session)-1]
		}
		if at := a.said[session]; ok && a.running[session] == nil && at.Add(30*day+2*time.Hour).Before(a.swept) {
			a.t.Errorf("%s is still there, %s after the session's last turn", key, a.swept.Sub(at))
		}
	}
}
