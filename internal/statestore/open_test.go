package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// filled returns a file system with a closed store that holds a hundred keys, in a table and in the log.
func filled(t *testing.T) *vfs.MemFS {
	t.Helper()
	return filledAndFlushed(t, 50)
}

// filledAndFlushed is the same with a table for each so many keys.
func filledAndFlushed(t *testing.T, each int) *vfs.MemFS {
	t.Helper()
	return filledWith(t, "v", func(keys int) bool { return keys%each == 0 && keys < 100 })
}

// inOneTable is the same with long values, all in one table and the file of its values: nothing is left to compact.
func inOneTable(t *testing.T) *vfs.MemFS {
	t.Helper()
	return filledWith(t, strings.Repeat("v", 2*separateFrom), func(keys int) bool { return keys == 100 })
}

// filledWith is the same with a value of choice, flushed after those numbers of keys.
func filledWith(t *testing.T, value string, flush func(keys int) bool) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	s, err := Open(Config{Dir: "state", FS: fs})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	for i := range 100 {
		if err := s.Restore(1, []Record{{Key: fmt.Sprint("k", i), Value: stored(value)}}, position(int64(i))); err != nil {
			t.Fatalf("Restore: %v", err)
		}
		if flush(i + 1) {
			if err := s.db.Flush(); err != nil {
				t.Fatalf("Flush: %v", err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return fs
}

func TestOpen_HasWhatWasThereWhenItWasClosed(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{FS: filled(t)})
	if pos, found, err := s.Position(1); err != nil || !found || pos != position(99) || len(committedState(t, s, 1)) != 100 {
		t.Errorf("after a restart: position %+v, %t, %v and %d keys", pos, found, err, len(committedState(t, s, 1)))
	}
}

func TestOpen_LeavesADirectoryAloneThatAnotherHasOpen(t *testing.T) {
	t.Parallel()
	for name, fs := range map[string]vfs.FS{"in memory": vfs.NewMem(), "on disk": vfs.Default} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Dir: "state", FS: fs}
			if fs == vfs.Default {
				cfg.Dir = t.TempDir() + "/state"
			}
			s, err := Open(cfg)
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			if err := s.Restore(1, []Record{{Key: "a", Value: stored("1")}}, position(1)); err != nil {
				t.Fatalf("Restore: %v", err)
			}
			if _, err := Open(cfg); !errors.Is(err, ErrLocked) {
				t.Errorf("the second Open gives %v, want ErrLocked", err)
			}
			if got := committedState(t, s, 1)["a"]; got != string(stored("1")) {
				t.Errorf("after it the first has %q", got)
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if s, err = Open(cfg); err != nil {
				t.Fatalf("Open after Close: %v", err)
			}
			if len(committedState(t, s, 1)) != 1 {
				t.Errorf("the state is gone")
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func TestOpen_MovesDamagedFilesAsideAndStartsEmpty(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, fs *vfs.MemFS, part string)
		part   string
	}{
		{"MANIFEST overwritten", overwrite, "MANIFEST-"},
		{"OPTIONS overwritten", overwrite, "OPTIONS-"},
		{"the manifest's marker names nothing", overwrite, "marker.manifest"},
		{"the format's marker names nothing", overwrite, "marker.format-version"},
		{"the manifest's marker missing, as CURRENT was once", remove, "marker.manifest"},
		{"MANIFEST missing", remove, "MANIFEST-0"},
		{"a table missing", remove, ".sst"},
		{"a file of values missing", remove, ".blob"},
		{"a file of values cut", cutShort, ".blob"},
		{"a file of values whose end is damaged", damageEnd, ".blob"},
		{"the last process found damage", mark, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fs := filled(t)
			if tc.part == ".blob" {
				fs = inOneTable(t)
			}
			tc.damage(t, fs, tc.part)
			s := openStore(t, Config{FS: fs})
			if n := len(committedState(t, s, 1)); n != 0 {
				t.Errorf("the new store has %d keys", n)
			}
			if _, found, err := s.Position(1); found || err != nil {
				t.Errorf("the new store has a position: %t, %v", found, err)
			}
			if aside := asides(t, fs); len(aside) != 1 {
				t.Errorf("moved aside: %q, want one directory", aside)
			}
			if err := s.Restore(1, []Record{{Key: "a", Value: stored("1")}}, position(1)); err != nil {
				t.Errorf("Restore into the new store: %v", err)
			}
		})
	}
}

// What Pebble itself has removed must not be missed at the next start.
func TestOpen_KnowsWhichFilesOfValuesWereRemoved(t *testing.T) {
	t.Parallel()
	fs := inOneTable(t)
	old := find(t, fs, ".blob")
	s, err := Open(Config{Dir: "state", FS: fs})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	for i := range 99 {
		if err := s.Restore(1, []Record{{Key: fmt.Sprint("k", i)}}, position(int64(100+i))); err != nil {
			t.Fatalf("Restore: %v", err)
		}
	}
	if err := s.Restore(1, []Record{{Key: "k99", Value: stored(strings.Repeat("w", 2*separateFrom))}}, position(199)); err != nil {
		t.Fatalf("Restore: %v", err)
	}
	if err := errors.Join(s.db.Flush(), s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false)); err != nil {
		t.Fatalf("Compact: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if _, err := fs.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is still there: %v", old, err)
	}
	next := openStore(t, Config{FS: fs})
	if n := len(committedState(t, next, 1)); n != 1 || len(asides(t, fs)) != 0 {
		t.Errorf("the next start has %d keys and set %q aside", n, asides(t, fs))
	}
}

// find returns the first file of the store whose name holds the part.
func find(t *testing.T, fs vfs.FS, part string) string {
	t.Helper()
	names, err := fs.List("state")
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.Contains(name, part) {
			return path.Join("state", name)
		}
	}
	t.Fatalf("no file %s among %q", part, names)
	return ""
}

func mark(t *testing.T, fs *vfs.MemFS, _ string) {
	t.Helper()
	if err := markDamaged(Config{Dir: "state", FS: fs}, errDamaged); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, fs *vfs.MemFS, part string) {
	t.Helper()
	if err := fs.Remove(find(t, fs, part)); err != nil {
		t.Fatalf("Remove: %v", err)
	}
}

func cutShort(t *testing.T, fs *vfs.MemFS, part string) {
	t.Helper()
	truncate(t, fs, find(t, fs, part), 100)
}

// damageEnd changes a byte of the end of a file, which says where everything is.
func damageEnd(t *testing.T, fs *vfs.MemFS, part string) {
	t.Helper()
	data, err := fs.UnsafeGetFileDataBuffer(find(t, fs, part))
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-6] ^= 0xff
}

// truncate cuts a file.
func truncate(t *testing.T, fs *vfs.MemFS, name string, length int) {
	t.Helper()
	data, err := fs.UnsafeGetFileDataBuffer(name)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	kept := bytes.Clone(data[:length])
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	if _, err := f.Write(kept); err != nil {
		t.Fatalf("Write: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// overwrite damages the file with the prefix: for a marker, whose content is its name, it makes one that names nothing.
func overwrite(t *testing.T, fs *vfs.MemFS, prefix string) {
	t.Helper()
	names, err := fs.List("state")
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		file := path.Join("state", name)
		if strings.HasPrefix(prefix, "marker.") {
			if err := fs.Remove(file); err != nil {
				t.Fatalf("Remove: %v", err)
			}
			file = path.Join("state", prefix+".999999.garbage")
		}
		f, err := fs.Create(file, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatalf("Create: %v", err)
		}
		if _, err := f.Write([]byte("this is not what Pebble wrote here")); err != nil {
			t.Fatalf("Write: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		return
	}
	t.Fatalf("no file %s among %q", prefix, names)
}

func asides(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("state")
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, asidePrefix) })
}

// refusing is a file system that refuses to open files for a reason of the machine's.
type refusing struct {
	vfs.FS
	err error
}

func (fs refusing) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: fs.err}
}

func (fs refusing) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: fs.err}
}

// A lack of rights says nothing about the files: the state stays where it is.
func TestOpen_KeepsTheFilesWhenTheMachineRefusesThem(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{os.ErrPermission, syscall.EACCES, syscall.EMFILE, syscall.EROFS} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			fs := filled(t)
			if _, err := Open(Config{Dir: "state", FS: refusing{fs, cause}}); !errors.Is(err, cause) || errors.Is(err, ErrLocked) {
				t.Errorf("Open gives %v, want %v", err, cause)
			}
			if aside := asides(t, fs); len(aside) != 0 {
				t.Errorf("moved aside: %q", aside)
			}
			s := openStore(t, Config{FS: fs})
			if n := len(committedState(t, s, 1)); n != 100 {
				t.Errorf("afterwards the store has %d keys, want 100", n)
			}
		})
	}
}

func TestOpen_SaysWhyTheDirectoryCannotBeLocked(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		dir := t.TempDir()
		if err := os.MkdirAll(path.Join(dir, "LOCK"), 0o755); err != nil { // Not a file, so it can't be locked by anyone.
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: dir}); err == nil || errors.Is(err, ErrLocked) {
			t.Errorf("Open gives %v, want an error that is not ErrLocked", err)
		}
		return
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, os.ErrPermission) || errors.Is(err, ErrLocked) {
		t.Errorf("Open gives %v, want permission denied", err)
	}
}

// Whatever is wrong with a byte of a file, Open gives a store whose every key has the value it had, or an empty one: damage is
// found at once, or reported when it is read.
func TestOpen_NeverGivesWrongStateFromDamagedFiles(t *testing.T) {
	t.Parallel()
	rnd := newRand(t)
	for range 25 {
		for _, value := range []string{"v", strings.Repeat("v", 2*separateFrom)} {
			fs := filledWith(t, value, func(keys int) bool { return keys%50 == 0 })
			file := flip(t, fs, rnd)
			checkDamaged(t, fs, file, value)
		}
	}
}

// flip changes one byte of one file.
func flip(t *testing.T, fs *vfs.MemFS, rnd *rand.Rand) string {
	t.Helper()
	names, err := fs.List("state")
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	for {
		name := names[rnd.IntN(len(names))]
		data, err := fs.UnsafeGetFileDataBuffer(path.Join("state", name))
		if err != nil || len(data) == 0 {
			continue
		}
		data[rnd.IntN(len(data))] ^= byte(1 + rnd.IntN(255))
		return name
	}
}

func checkDamaged(t *testing.T, fs *vfs.MemFS, file, value string) {
	t.Helper()
	s, err := Open(Config{Dir: "state", FS: fs})
	if err != nil {
		t.Fatalf("%s damaged: Open: %v", file, err)
	}
	readable := true
	for i := range 100 {
		v, found, err := s.get(1, fmt.Sprint("k", i))
		readable = readable && err == nil
		if err == nil && found && string(v) != string(stored(value)) {
			t.Errorf("%s damaged: k%d is %q", file, i, v)
		}
	}
	pos, found, err := s.Position(1)
	keys := 0
	if readable && err == nil {
		keys = len(committedState(t, s, 1))
	}
	if readable && err == nil && found && int64(keys) != pos.ChangelogNext-position(0).ChangelogNext+1 {
		t.Errorf("%s damaged: %d keys at position %d", file, keys, pos.ChangelogNext)
	}
	s.Close() // Damage may show here again.
}
