package statestore

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestStore_TheDiskFollowsWhatIsKept: keys come and expire, as turns do, and the files hold what is kept and a bounded rest, however
// much was written. With memtables of a 256th all sizes of Pebble are that much smaller but one, which takes no part here.
func TestStore_TheDiskFollowsWhatIsKept(t *testing.T) {
	t.Parallel()
	const (
		memTable = 64 << 10
		kept     = 500
		cycle    = 50
		value    = 1 << 10
		// rest are the files of level 0 at which Pebble stops writes until it has compacted some (L0StopWritesThreshold), its logs, and
		// files that are just being deleted.
		rest = (48 + 16) * memTable
	)
	fs, rng := vfs.NewMem(), newRand(t)
	s := openStore(t, Config{FS: fs, MemTableBytes: memTable})
	p := attach(s, 0)
	defer p.Detach()
	noise := make([]byte, value) // What compresses would not fill the files.
	for k := range noise {
		noise[k] = byte(rng.UintN(256))
	}
	written := 0
	for i := range 20_000 {
		noise[i%value]++
		add(t, p, effect(set(fmt.Sprintf("t%06d", i), string(noise))))
		if i >= kept {
			add(t, p, effect(del(fmt.Sprintf("t%06d", i-kept))))
		}
		written += value
		if i%cycle != cycle-1 {
			continue
		}
		commitAll(t, s, p)
		if size := bytesIn(t, fs, "state"); size > 2*kept*value+rest {
			t.Fatalf("after %d KB of which %d KB are kept the files have %d KB", written>>10, kept*value>>10, size>>10)
		}
	}
	if n := len(committedState(t, s, 0)); n != kept {
		t.Errorf("%d keys are kept, want %d", n, kept)
	}
}

// bytesIn is the size of all files in a folder and below.
func bytesIn(tb testing.TB, fs vfs.FS, dir string) (sum int64) {
	tb.Helper()
	names, err := fs.List(dir)
	if err != nil {
		tb.Fatalf("List: %v", err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		switch {
		case err != nil: // Pebble has just deleted it.
		case info.IsDir():
			sum += bytesIn(tb, fs, path)
		default:
			sum += info.Size()
		}
	}
	return sum
}
