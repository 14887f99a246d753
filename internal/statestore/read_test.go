package statestore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPartition_GetsTheNewestWhereverItIs writes keys to the last level, to the first and to the memtable, over each other, deletes some,
// and looks for them and for what was never there.
func TestPartition_GetsTheNewestWhereverItIs(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p, other := attach(s, 1), attach(s, 2)
	defer p.Detach()
	defer other.Detach()
	places := []func() error{
		func() error { return s.db.Compact(t.Context(), []byte{0}, []byte{255}, false) },
		s.db.Flush,
		func() error { return nil },
	}
	want := map[string]string{}
	for round, settle := range places {
		for i := range 300 {
			key := keyOf(i)
			value := strconv.Itoa(round) + strings.Repeat("v", i%2*2*separateFrom)
			switch {
			case i%7 == round:
				add(t, p, effect(del(key)))
				delete(want, key)
			case i%(round+1) == 0:
				add(t, p, effect(set(key, value)))
				want[key] = value
			}
			add(t, other, effect(set(key+"x", "another partition's")))
		}
		commitAll(t, s, p)
		commitAll(t, s, other)
		if err := settle(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		for _, key := range []string{keyOf(i), keyOf(i) + "x", keyOf(i)[:3]} {
			got, found, err := p.Get(key)
			value, ok := want[key]
			if err != nil || found != ok || ok && string(got) != string(stored(value)) {
				t.Errorf("%s is %d bytes, %t, %v, want %d bytes, %t", key, len(got), found, err, len(value), ok)
			}
			if found, err := s.has(1, key); err != nil || found != ok {
				t.Errorf("%s is there: %t, %v, want %t", key, found, err, ok)
			}
		}
	}
}

// keyOf gives keys alone and keys in groups of ten.
func keyOf(i int) string {
	if i%3 == 0 {
		return fmt.Sprintf("k%04d", i)
	}
	return fmt.Sprintf("g%03d/%d", i/10, i%10)
}

// inLastLevel is inOneTable with the table in the last level.
func inLastLevel(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := inOneTable(t)
	s, err := Open(Config{Dir: "state", FS: fs})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{255}, false); err != nil {
		t.Fatalf("Compact: %v", err)
	}
	if levels := s.db.Metrics().Levels; levels[len(levels)-1].TablesCount != 1 {
		t.Fatal("the table is not in the last level")
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return fs
}

// TestStore_DamageNeverHidesWhatIsThere damages the table of a key here and there, its bloom filter too: the key is found, or it is an
// error.
func TestStore_DamageNeverHidesWhatIsThere(t *testing.T) {
	t.Parallel()
	const step = 61
	failed := 0
	for at := 0; ; at += step {
		fs := inLastLevel(t)
		data, err := fs.UnsafeGetFileDataBuffer(find(t, fs, ".sst"))
		if err != nil {
			t.Fatal(err)
		}
		if at >= len(data) {
			break
		}
		data[at] ^= 0xff
		s, err := Open(Config{Dir: "state", FS: fs})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		_, found, err := s.get(1, "k42")
		there, hasErr := s.has(1, "k42")
		if err == nil && !found || hasErr == nil && !there {
			t.Errorf("with byte %d of %d damaged the key is not there", at, len(data))
		}
		if err != nil {
			failed++
		}
		s.Close() // Damage may show here again.
	}
	if failed < 3 {
		t.Errorf("damage was found %d times", failed)
	}
}
