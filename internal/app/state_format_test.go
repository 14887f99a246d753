package app

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lathe-run/lathe/internal/statestore"
)

// nextRelease are the formats of a release after this one, whose format 2 stores bodies backwards.
func nextRelease(write byte) statestore.Formats {
	turned := func(body []byte) []byte {
		out := bytes.Clone(body)
		slices.Reverse(out)
		return out
	}
	return statestore.Formats{
		Newest: 2, Write: write,
		Load:  func(_ byte, _ string, body []byte) ([]byte, error) { return turned(body), nil },
		Store: func(_ byte, _ string, body []byte) []byte { return turned(body) },
	}
}

// formatsWritten are the versions that the changelog has.
func (b *stateBed) formatsWritten() []byte {
	var out []byte
	for _, r := range b.read("changelog") {
		if r.Value != nil && !slices.Contains(out, r.Value[0]) {
			out = append(out, r.Value[0])
		}
	}
	slices.Sort(out)
	return out
}

// A deployment rolls from this release to the next and back while both share the group: turns go on, each runs once, sessions are
// whole, and every value that either writes is one the other reads.
func TestFormats_RollForwardAndBack(t *testing.T) {
	t.Parallel()
	inStateBed(t, func(b *stateBed) {
		disks := map[string]vfs.FS{"a": vfs.NewMem(), "b": vfs.NewMem()}
		this, next := statestore.Formats{}, nextRelease(0)
		var all []string
		round := 0
		talk := func() {
			round++
			for i := range 12 {
				id := fmt.Sprintf("s%d-r%d", i, round)
				b.send(fmt.Sprint("s", i), id)
				all = append(all, id)
			}
		}
		wa, wb := b.start("a", disks["a"], this), b.start("b", disks["b"], this)
		b.running(wa, wb)
		talk()
		b.handled()
		for _, to := range []statestore.Formats{next, this, next} {
			talk()
			wa.drain() // Turns move to b, and back to another release.
			talk()
			wa = b.start("a", disks["a"], to)
			b.running(wa, wb)
			talk()
			wb.kill()
			wb = b.start("b", disks["b"], to)
			talk()
			b.running(wa, wb)
			b.handled()
		}
		for _, id := range all { // All of it comes again.
			b.send(b.sent[id], id)
		}
		b.handled()
		b.wantEnds(1, all...)
		if got := b.formatsWritten(); !slices.Equal(got, []byte{1}) {
			t.Errorf("formats %v are written, want 1 alone", got)
		}
		turns := 0
		for _, key := range b.keys() {
			if strings.HasPrefix(key, "hs0/") {
				turns++
			}
		}
		if turns != round {
			t.Errorf("session s0 has %d turns, want %d", turns, round)
		}
		wa.drain()
		wb.drain()
	})
}

// Once the setting says so the next release writes its own format, still reads what was there, and this release refuses the
// partition before it runs anything, with an error that names format and setting.
func TestFormats_AnOlderReleaseHaltsWhatANewerWroteInItsOwn(t *testing.T) {
	t.Parallel()
	inStateBed(t, func(b *stateBed) {
		disk := vfs.NewMem()
		w := b.start("w", disk, statestore.Formats{})
		b.running(w)
		b.ask("s1", "s1-t0", "s1-t1")
		w.drain()
		w = b.start("w", disk, nextRelease(2))
		b.running(w)
		b.ask("s1", "s1-t2", "s1-t0")
		b.wantEnds(1, "s1-t0", "s1-t1", "s1-t2")
		if got := b.formatsWritten(); !slices.Equal(got, []byte{1, 2}) {
			t.Errorf("formats %v are written, want 1 and 2", got)
		}
		w.isTheChangelog()
		w.drain()
		for name, disk := range map[string]vfs.FS{"its disk kept": disk, "its disk lost": vfs.NewMem()} {
			w = b.start("w", disk, statestore.Formats{})
			fault := ""
			b.eventually("the partitions, to all of which the newer release wrote, are halted", func() bool {
				halted := 0
				for _, s := range w.worker.Status().Partitions {
					if s.State == "halted" {
						halted, fault = halted+1, s.Fault
					}
				}
				return halted == statePartitions
			})
			if !strings.Contains(fault, "is stored in format 2 and this release reads up to 1") || !strings.Contains(fault, "LATHE_STATE_FORMAT=1") {
				t.Errorf("%s: the fault is %q", name, fault)
			}
			w.kill()
		}
		w = b.start("w", disk, nextRelease(2)) // The release that reads it goes on.
		b.running(w)
		b.ask("s1", "s1-t3")
		b.wantEnds(1, "s1-t3")
		w.drain()
	})
}
