package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lathe-run/lathe/internal/statestore"
)

// slack is what expiry takes beside the retention: what is kept is kept to the hour, and looked at every minute.
const slack = time.Hour + 5*time.Minute

func idsOf(session string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-t%d", session, i)
	}
	return out
}

// The life of state over hours: a repeat is recognised within the retention and is a new turn after it, a session outlives its
// turns' records, and in the end the changelog and the disk have nothing but positions, whoever has the partitions meanwhile.
func TestState_ShrinksToNothingWhenAllHasExpired(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(b *stateBed, w *stateWorker, disk vfs.FS) *stateWorker{
		"one worker": func(_ *stateBed, w *stateWorker, _ vfs.FS) *stateWorker { return w },
		"killed, its disk kept": func(b *stateBed, w *stateWorker, disk vfs.FS) *stateWorker {
			w.kill()
			return b.start("w", disk, statestore.Formats{})
		},
		"killed, its disk lost": func(b *stateBed, w *stateWorker, _ vfs.FS) *stateWorker {
			w.kill()
			return b.start("w", vfs.NewMem(), statestore.Formats{})
		},
		"drained, another goes on": func(b *stateBed, w *stateWorker, _ vfs.FS) *stateWorker {
			w.drain()
			return b.start("v", vfs.NewMem(), statestore.Formats{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inStateBed(t, func(b *stateBed) {
				disk := vfs.NewMem()
				w := b.start("w", disk, statestore.Formats{})
				b.running(w)
				var all []string
				for i := range 8 {
					session := fmt.Sprint("s", i)
					b.send(session, idsOf(session, 5)...)
					all = append(all, idsOf(session, 5)...)
				}
				b.handled()
				b.wantEnds(1, all...)

				<-time.After(keepTurns - 10*time.Minute)
				w = next(b, w, disk)
				b.running(w)
				for _, id := range all {
					b.send(strings.Split(id, "-")[0], id)
				}
				b.handled()
				b.wantEnds(1, all...)

				<-time.After(slack + 10*time.Minute)
				if keys := b.keys(); len(keys) != 40 || keys[0][0] != 'h' {
					t.Errorf("after the retention of turns the state has %d keys: %q, want the sessions' 40 turns", len(keys), keys)
				}
				w.isTheChangelog()
				w = next(b, w, disk)
				b.running(w)
				b.ask("s0", "s0-t0")
				b.wantEnds(2, "s0-t0")
				b.wantEnds(1, all[1:]...)

				<-time.After(keepTurns + slack)
				for _, key := range b.keys() {
					if !strings.HasPrefix(key, "hs0/") {
						t.Errorf("%s is still there: only the session that had a turn may be", key)
					}
				}
				if n := len(b.keys()); n != 6 {
					t.Errorf("the session that had another turn has %d turns, want 6", n)
				}

				<-time.After(keepSessions - keepTurns)
				if keys := b.keys(); len(keys) != 0 {
					t.Errorf("in the end the state has %q", keys)
				}
				w.isTheChangelog()
				w.drain()
			})
		})
	}
}

// A worker whose clock jumps forgets nothing early, and goes on to expire when its clock is right again.
func TestState_OutlivesAClockThatJumps(t *testing.T) {
	t.Parallel()
	inStateBed(t, func(b *stateBed) {
		disk := vfs.NewMem()
		w := b.start("w", disk, statestore.Formats{})
		b.running(w)
		b.ask("s1", idsOf("s1", 3)...)
		for i, jump := range []time.Duration{9 * 365 * 24 * time.Hour, -400 * 24 * time.Hour, 9 * 365 * 24 * time.Hour} {
			b.ahead.Store(int64(jump))
			<-time.After(10 * time.Minute)
			if i == 1 { // So that no clock of the process itself helps.
				w.kill()
				w = b.start("w", disk, statestore.Formats{})
				b.running(w)
			}
			other := fmt.Sprint("other", i)
			b.ask(other, other+"-t0")
			<-time.After(10 * time.Minute)
			b.send("s1", idsOf("s1", 3)...)
			b.handled()
			b.wantEnds(1, idsOf("s1", 3)...)
		}
		b.ahead.Store(0)
		<-time.After(keepSessions + slack)
		b.ask("late", "late-t0")
		<-time.After(2 * time.Minute)
		for _, key := range b.keys() {
			if strings.Contains(key, "s1") {
				t.Errorf("%s is still there", key)
			}
		}
		w.isTheChangelog()
		w.drain()
	})
}
