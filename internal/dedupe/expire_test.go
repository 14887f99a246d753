package dedupe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

const day = 24 * time.Hour

// newAging makes a bed in which turns are remembered for 15 days and sessions for 30.
func newAging(tb testing.TB, change ...func(*Config)) *bed {
	tb.Helper()
	return newBed(tb, append([]func(*Config){func(c *Config) { c.TurnRetention, c.SessionRetention = 15*day, 30*day }}, change...)...)
}

// turnOf is a turn whose record is as old as the bed's clock says.
func (b *bed) turnOf(session, id string, offset int64) *Input {
	in := askIn(session, id, id, offset)
	in.Timestamp = b.cfg.Now()
	return in
}

// end ends a turn now.
func (b *bed) end(j *Journal) {
	b.t.Helper()
	e := ended(schemas.StatusCompleted)
	e.At = b.cfg.Now()
	b.add(j, e)
	j.Close()
}

// runTurn runs a turn to its end and commits it.
func (b *bed) runTurn(session, id string, offset int64) {
	b.t.Helper()
	j := b.accept(b.turnOf(session, id, offset))
	b.add(j, responded(0))
	b.end(j)
	b.commit()
}

// pass lets time pass, for producers and workers alike, and looks for what has expired.
func (b *bed) pass(d time.Duration) int {
	b.t.Helper()
	b.setClock(d)
	b.store.codec.clock.see(b.cfg.Now())
	return b.expire()
}

// setClock moves the worker's clock alone.
func (b *bed) setClock(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock = b.clock.Add(d)
}

// expire runs an expiry with a commit whenever it waits for one.
func (b *bed) expire() int {
	b.t.Helper()
	done := make(chan error, 1)
	var n int
	go func() {
		var err error
		n, err = b.store.Expire(b.t.Context())
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				b.t.Fatalf("Expire: %v", err)
			}
			return n
		case <-b.added:
			b.commit()
		}
	}
}

// known reports whether a turn is recognised when it comes again.
func (b *bed) known(session, id string, offset int64) bool {
	b.t.Helper()
	j, err := b.store.Accept(b.turnOf(session, id, offset))
	if err != nil {
		b.t.Fatalf("Accept(%s): %v", id, err)
	}
	b.commit()
	if j == nil {
		return true
	}
	b.end(j)
	b.commit()
	return false
}

// checkFold checks that Pebble has what the changelog has.
func (b *bed) checkFold() map[string]bool {
	b.t.Helper()
	want := map[string]string{}
	for _, r := range b.records {
		if r.Value == nil {
			delete(want, r.Key)
		} else {
			want[r.Key] = string(r.Value)
		}
	}
	got, keys := map[string]string{}, map[string]bool{}
	if err := b.state.Scan(testPartition, "", func(key string, value []byte) error {
		got[key], keys[key] = string(value), true
		return nil
	}); err != nil {
		b.t.Fatalf("Scan: %v", err)
	}
	if !maps.Equal(got, want) {
		b.t.Errorf("Pebble is not the fold of the changelog (-changelog +pebble):\n%s", cmp.Diff(want, got))
	}
	return keys
}

// checkNothingNoted checks that no note outlives what it names.
func (b *bed) checkNothingNoted() {
	b.t.Helper()
	for _, class := range []byte{classTurn, classSession} {
		if n, found, err := b.part.NextNote(class, b.clock.Add(1000*day), statestore.Note{}); err != nil || found {
			b.t.Errorf("class %c: there is still a note of %q, %v", class, n.Names, err)
		}
	}
}

func TestExpire_ForgetsATurnAfterItsRetentionAndNoEarlier(t *testing.T) {
	t.Parallel()
	b := newAging(t)
	b.runTurn("s1", "t1", 1)
	if n := b.pass(15*day - time.Minute); n != 0 || !b.known("s1", "t1", 2) {
		t.Fatalf("%d things expired within the retention, or the turn is not known", n)
	}
	if n := b.pass(2*time.Hour + time.Minute); n != 2 { // The turn, and the agent's configuration.
		t.Errorf("%d things expired after the retention, want 2", n)
	}
	if b.known("s1", "t1", 3) {
		t.Errorf("the turn is still known after the retention")
	}
	b.checkFold()
}

func TestExpire_LeavesNothingOfATurnThatAllHasExpired(t *testing.T) {
	t.Parallel()
	b := newAging(t)
	for i := range 20 {
		b.runTurn(fmt.Sprint("s", i%3), fmt.Sprint("t", i), int64(i))
		b.pass(time.Hour)
	}
	if err := b.store.Cancel(&schemas.TurnEvent{Type: schemas.InputCancel, TurnID: "never", SessionID: "s1"}, 20); err != nil {
		t.Fatal(err)
	}
	b.commit()
	if keys := b.checkFold(); len(keys) != 20+20+1+1 {
		t.Fatalf("the state has %d keys", len(keys))
	}
	b.pass(31 * day)
	if keys := b.checkFold(); len(keys) != 0 {
		t.Errorf("the state still has %q", slices.Sorted(maps.Keys(keys)))
	}
	b.checkNothingNoted()
	if len(b.store.mu.cancels)+len(b.store.mu.agents)+len(b.store.mu.expiring)+len(b.store.mu.underWay) != 0 {
		t.Errorf("memory still has %v, %v, %v, %v", b.store.mu.cancels, b.store.mu.agents, b.store.mu.expiring, b.store.mu.underWay)
	}
}

func TestExpire_ANewTurnKeepsTheWholeSession(t *testing.T) {
	t.Parallel()
	b := newAging(t)
	b.runTurn("s1", "t1", 1)
	b.runTurn("s2", "x1", 2)
	b.pass(20 * day)
	b.runTurn("s1", "t2", 3)
	b.pass(29 * day)
	j := b.accept(b.turnOf("s1", "t3", 4))
	if got := texts(j.History()); !slices.Equal(got, []string{"user t1", "assistant done", "user t2", "assistant done"}) {
		t.Errorf("history = %q", got)
	}
	b.end(j)
	b.commit()
	other := b.accept(b.turnOf("s2", "x2", 5))
	if got := texts(other.History()); len(got) != 0 {
		t.Errorf("the other session, 49 days without a turn, still has %q", got)
	}
	b.end(other)
	b.commit()
	b.pass(32 * day)
	if keys := b.checkFold(); len(keys) != 0 {
		t.Errorf("in the end the state has %q", slices.Sorted(maps.Keys(keys)))
	}
}

// A turn under way keeps its journal, its session and its agent for as long as it takes, whoever has it.
func TestExpire_ARunningTurnNeverExpires(t *testing.T) {
	t.Parallel()
	b := newAging(t)
	b.runTurn("s1", "t1", 1)
	b.add(b.accept(b.turnOf("s1", "t2", 2)), responded(0, `{}`))
	b.commit()
	b.pass(20 * day)
	b.restart("w2")
	b.pass(400 * day)
	b.runTurn("s2", "x1", 3)
	b.pass(time.Hour)
	j := b.accept(b.turnOf("s1", "t2", 2))
	if !j.Resumed() || j.Agent().System != "You help." || len(j.Frames()) != 2 || len(texts(j.History())) != 2 {
		t.Errorf("the turn resumes as %t with %d frames, history %q", j.Resumed(), len(j.Frames()), texts(j.History()))
	}
	if b.store.noteOf("tt1") {
		t.Errorf("the session's earlier turn is still remembered")
	}
	b.end(j)
	b.commit()
	if keys := b.checkFold(); !keys["hs1/00000000/0000"] || !keys["hs1/00000001/0000"] {
		t.Errorf("the session has lost something: %q", slices.Sorted(maps.Keys(keys)))
	}
	b.pass(31 * day)
	if keys := b.checkFold(); len(keys) != 0 {
		t.Errorf("in the end the state has %q", slices.Sorted(maps.Keys(keys)))
	}
}

func (s *Store) noteOf(key string) bool {
	_, found, err := s.state.Get(key)
	return found || err != nil
}

// A turn that begins while an expiry has its session and its agent in hand takes them back; a cancel does so with its like.
func TestExpire_GivesBackWhatIsNeededInTheMeantime(t *testing.T) {
	t.Parallel()
	b := newAging(t, func(c *Config) { c.SessionRetention = 15 * day })
	b.runTurn("s1", "t1", 1)
	cancel := &schemas.TurnEvent{Type: schemas.InputCancel, TurnID: "t9", SessionID: "s1"}
	if err := b.store.Cancel(cancel, 2); err != nil {
		t.Fatal(err)
	}
	b.commit()
	b.setClock(17 * day)
	b.store.codec.clock.see(b.cfg.Now())
	now, _ := b.store.codec.clock.time()
	w := sweep{store: b.store, before: now.Add(-15 * day)}
	for _, class := range []byte{classTurn, classSession} {
		var note statestore.Note
		for {
			next, found, err := b.part.NextNote(class, w.before, note)
			if err != nil {
				t.Fatal(err)
			}
			if !found {
				break
			}
			note = next
			if err := w.note(t.Context(), note); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(w.doomed) != 4 {
		t.Fatalf("the expiry has %v in hand, want a turn, an agent, a cancel and a session", w.doomed)
	}
	j := b.accept(b.turnOf("s1", "t2", 3))
	if err := b.store.Cancel(cancel, 4); err != nil {
		t.Fatal(err)
	}
	e := &statestore.Effect{Offset: statestore.NoOffset}
	if err := b.store.remove(&w, e); err != nil {
		t.Fatal(err)
	}
	b.commit()
	if keys := b.checkFold(); keys["tt1"] || !keys["hs1/00000000/0000"] || !keys["ct9/s1"] || !keys[agentKey(j.accepted.AgentHash)] {
		t.Errorf("the state has %q", slices.Sorted(maps.Keys(keys)))
	}
	b.end(j)
	late := b.accept(b.turnOf("s1", "t9", 5))
	if len(late.Frames()) != 2 {
		t.Errorf("the turn whose cancel came again begins with %d facts, want 2", len(late.Frames()))
	}
	b.end(late)
	b.commit()
	b.pass(17 * day)
	if keys := b.checkFold(); len(keys) != 0 {
		t.Errorf("in the end the state has %q", slices.Sorted(maps.Keys(keys)))
	}
	b.checkNothingNoted()
}

// However much expires at once, it goes in effects of a bounded size, each committed before the next.
func TestExpire_GoesInBoundedEffects(t *testing.T) {
	t.Parallel()
	b := newAging(t)
	const turns = 3*expireNames + 7
	for i := range turns {
		j := b.accept(b.turnOf(fmt.Sprint("s", i), fmt.Sprint("t", i), int64(i)))
		b.end(j)
	}
	b.commit()
	b.setClock(40 * day)
	b.store.codec.clock.see(b.cfg.Now())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		n, _ := b.store.Expire(ctx)
		done <- n
	}()
	for range 2 {
		<-b.added
		if n, _ := b.part.Pending(); n != 1 {
			t.Errorf("%d effects wait, want one at a time", n)
		}
		if records, _ := b.commit(); len(records) == 0 || len(records) > expireNames+1 {
			t.Errorf("an effect has %d records", len(records))
		}
	}
	<-b.added
	cancel() // A drain: what was added still commits, nothing more is added.
	n := <-done
	b.commit()
	if n < 2*expireNames || n >= turns {
		t.Errorf("%d had expired when it was stopped", n)
	}
	b.restart("w2")
	b.store.codec.clock.see(b.cfg.Now())
	b.expire()
	if keys := b.checkFold(); len(keys) != 0 {
		t.Errorf("the state still has %d keys", len(keys))
	}
	b.checkNothingNoted()
}

// Expiry believes neither the worker's clock nor the producers' alone.
func TestExpire_OutlivesClocksThatJump(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// worker and producer are how far the clocks are off while the turn runs, then what they do 10 days later.
		worker, producer, thenWorker, thenProducer time.Duration
	}{
		"the worker's clock is set years ahead":           {thenWorker: 9 * 365 * day},
		"the producers' clocks are set years ahead":       {thenProducer: 9 * 365 * day},
		"the worker's clock was years ahead":              {worker: 9 * 365 * day, thenWorker: -9 * 365 * day},
		"the worker's clock was a month behind":           {worker: -30 * day, thenWorker: 30 * day},
		"the producers' clocks were a month behind":       {producer: -30 * day, thenProducer: 30 * day},
		"the worker's clock goes back a month":            {thenWorker: -30 * day},
		"the producers' clocks go back a month":           {thenProducer: -30 * day},
		"one is years ahead while the other is years ago": {thenWorker: 9 * 365 * day, thenProducer: -9 * 365 * day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newAging(t)
			producers := b.clock.Add(tc.producer)
			b.setClock(tc.worker)
			in := askIn("s1", "t1", "t1", 1)
			in.Timestamp = producers
			j := b.accept(in)
			b.end(j)
			b.commit()
			producers = producers.Add(10*day + tc.thenProducer)
			b.setClock(10*day + tc.thenWorker)
			b.restart("w2") // So that no monotonic clock helps.
			in = askIn("s2", "x1", "x1", 2)
			in.Timestamp = producers
			b.end(b.accept(in))
			b.commit()
			if n := b.expire(); n != 0 {
				t.Errorf("%d things expired after 10 of 15 days", n)
			}
			in = askIn("s1", "t1", "t1", 3)
			in.Timestamp = producers
			if j, err := b.store.Accept(in); j != nil || err != nil {
				t.Errorf("the repeat is %v, %v", j, err)
			}
		})
	}
}

// Nothing expires before a first record came: until then only one clock is known.
func TestExpire_WaitsForAFirstRecord(t *testing.T) {
	t.Parallel()
	b := newAging(t)
	b.runTurn("s1", "t1", 1)
	b.restart("w2")
	b.setClock(100 * day)
	if n := b.expire(); n != 0 {
		t.Errorf("%d things expired", n)
	}
	b.runTurn("s2", "x1", 2)
	if n := b.expire(); n != 3 {
		t.Errorf("%d things expired after a record came, want a turn, a session and an agent's configuration", n)
	}
}

func TestHistory_KeepsItsBoundsInTurnsAndBytes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"turns": func(c *Config) { c.SessionTurns = 3 },
		"bytes": func(c *Config) { c.SessionBytes = 1500 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, change)
			for i := range 9 {
				b.say("s1", fmt.Sprint("t", i), fmt.Sprint("say ", i), `"r"`, int64(i))
				if i%2 == 0 {
					b.commit()
				}
			}
			b.commit()
			b.checkFold()
			j := b.accept(ask("last", "last", 10))
			if got := texts(j.History()); len(got) != 3*4 || got[0] != "user say 6" || got[8] != "user say 8" {
				t.Errorf("history = %q", got)
			}
			j.Close()
		})
	}
	t.Run("a turn larger than the bound", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, func(c *Config) { c.SessionBytes = 10 })
		b.say("s1", "t1", "one", `"r"`, 1)
		b.say("s1", "t2", "two", `"r"`, 2)
		j := b.accept(ask("t3", "three", 3))
		if got := texts(j.History()); len(got) != 4 || got[0] != "user two" {
			t.Errorf("history = %q", got)
		}
		j.Close()
	})
}
