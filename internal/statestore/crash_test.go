package statestore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

// history is what partitions should be at each position: the fold of all cycles up to it.
type history map[int32]map[int64]map[string]string

func (h history) record(partition int32, pos int64, records []Record) {
	if h[partition] == nil {
		h[partition] = map[int64]map[string]string{0: {}}
	}
	state := maps.Clone(h[partition][pos-1])
	fold(state, records)
	h[partition][pos] = state
}

// A kill loses the end of Pebble's log, and whatever it leaves is the state of one earlier moment, with the position of that
// moment, for each partition.
func TestStore_IsAtOneEarlierMomentAfterACrash(t *testing.T) {
	t.Parallel()
	rnd := newRand(t)
	for round := range 8 {
		fs := vfs.NewCrashableMem()
		s, err := Open(Config{Dir: "state", FS: fs, MemTableBytes: 64 << 10, RecordBytes: 256})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		h := history{}
		synced := run(t, s, rnd, h)
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd})
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		checkRecovered(t, round, crashed, h, synced)
	}
}

// run commits random cycles to two partitions, and returns the last cycle that was synced.
func run(t *testing.T, s *Store, rnd *rand.Rand, h history) (synced int64) {
	t.Helper()
	parts := []*Partition{attach(s, 1), attach(s, 2)}
	last := 1 + rnd.IntN(120)
	for cycle := int64(1); cycle <= int64(last); cycle++ {
		var cycleOf []Settlement
		for _, p := range parts {
			e := effect()
			for range 1 + rnd.IntN(4) {
				key := fmt.Sprint("k", rnd.IntN(20))
				if rnd.IntN(4) == 0 {
					e.Mutations = append(e.Mutations, del(key))
				} else {
					e.Mutations = append(e.Mutations, Mutation{Op: OpSet, Key: key, Value: stored(string(make([]byte, rnd.IntN(3000))))})
				}
			}
			e.Mutations = append(e.Mutations, app(fmt.Sprint("j", cycle/3), strconv.FormatInt(cycle, 10)))
			if cycle%3 == 2 {
				e.Mutations = append(e.Mutations, drop(fmt.Sprint("j", cycle/3)))
			}
			add(t, p, e)
			b := take(t, p)
			h.record(p.ID(), cycle, b.Records)
			cycleOf = append(cycleOf, Settlement{Batch: b, Position: position(cycle)})
		}
		commitCycle(t, s, cycleOf...)
		if rnd.IntN(40) == 0 {
			if err := s.Sync(); err != nil {
				t.Fatalf("Sync: %v", err)
			}
			synced = cycle
		}
	}
	for _, p := range parts {
		p.Detach()
	}
	return synced
}

func checkRecovered(t *testing.T, round int, fs vfs.FS, h history, synced int64) {
	t.Helper()
	s := openStore(t, Config{FS: fs})
	if aside := asides(t, fs); len(aside) > 0 {
		t.Errorf("round %d: a crash is no damage, but there are %q", round, aside)
	}
	var moment int64
	for _, partition := range []int32{1, 2} {
		pos, found, err := s.Position(partition)
		if err != nil {
			t.Fatalf("Position: %v", err)
		}
		if found && pos != position(pos.ChangelogNext) {
			t.Errorf("round %d: position %+v was never written", round, pos)
		}
		if pos.ChangelogNext < synced {
			t.Errorf("round %d: partition %d is at %d, although %d was synced", round, partition, pos.ChangelogNext, synced)
		}
		if partition == 2 && pos.ChangelogNext != moment {
			t.Errorf("round %d: a cycle was cut in half: partition 1 is at %d, 2 at %d", round, moment, pos.ChangelogNext)
		}
		moment = pos.ChangelogNext
		want := h[partition][pos.ChangelogNext]
		if got := committedState(t, s, partition); !maps.Equal(got, want) {
			t.Errorf("round %d: partition %d at %d (-want +got):\n%s", round, partition, pos.ChangelogNext, cmp.Diff(want, got))
		}
	}
}
