package statestore

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

func FuzzNames(f *testing.F) {
	f.Add(appendName(appendName(nil, "a turn"), ""))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		names, err := parseNames(b)
		if err != nil {
			return
		}
		var again []byte
		for _, n := range names {
			again = appendName(again, n)
		}
		if got, err := parseNames(again); err != nil || !cmp.Equal(got, names) {
			t.Errorf("read %q, then %q, %v", names, got, err)
		}
	})
}

// FuzzNoteOfFiles: whatever the note of the files holds, it is read or the directory counts as damaged.
func FuzzNoteOfFiles(f *testing.F) {
	f.Add([]byte("MANIFEST-000001 12 0badcafe\n000002.log 0 00000000\n"))
	f.Add([]byte("000002.log -1 zz\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		if err := writeFile(fs, noteFile, string(b)); err != nil {
			t.Fatal(err)
		}
		sums, err := readNote(Config{FS: fs})
		if err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("%q gives %v", b, err)
		}
		for name := range sums {
			if !isNoted(name) {
				t.Errorf("%q notes %q", b, name)
			}
		}
	})
}
