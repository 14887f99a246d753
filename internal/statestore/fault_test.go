package statestore

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func hasFailed(s *Store) bool {
	select {
	case <-s.Failed():
		return true
	default:
		return false
	}
}

// A table whose block is damaged opens without a word; the damage shows when the block is read. Were that only an error of the
// read, the next start would open the same files, and the one after it.
func TestStore_DamageFoundWhileReadingEndsItAndTheNextStartIsEmpty(t *testing.T) {
	t.Parallel()
	get := func(s *Store) error { _, _, err := s.get(1, "k1"); return err }
	scan := func(s *Store) error { return s.Scan(1, "", func(string, []byte) error { return nil }) }
	for _, tc := range []struct {
		name, file string
		read       func(s *Store) error
	}{
		{"get", ".sst", get},
		{"look up", ".sst", func(s *Store) error { _, err := s.has(1, "k1"); return err }},
		{"scan", ".sst", scan},
		{"get a long value", ".blob", get},
		{"scan long values", ".blob", scan},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fs := inOneTable(t)
			data, err := fs.UnsafeGetFileDataBuffer(find(t, fs, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			data[10] ^= 0xff // In the first block.
			s, err := Open(Config{Dir: "state", FS: fs})
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			if hasFailed(s) {
				t.Fatal("the store has failed before anything was read")
			}
			checkReadFindsDamage(t, fs, s, tc.read)
		})
	}
}

// checkReadFindsDamage reads, which must end the store, and starts again, which must heal it.
func checkReadFindsDamage(t *testing.T, fs *vfs.MemFS, s *Store, read func(s *Store) error) {
	t.Helper()
	if err := read(s); err == nil {
		t.Error("what is damaged was read without an error")
	}
	if !hasFailed(s) || !errors.Is(s.Err(), ErrDamaged) {
		t.Errorf("after the read: failed %t, %v; want ErrDamaged", hasFailed(s), s.Err())
	}
	s.Close() // Damage may show here again.
	next := openStore(t, Config{FS: fs})
	if n := len(committedState(t, next, 1)); n != 0 || len(asides(t, fs)) != 1 {
		t.Errorf("the next start has %d keys and set %q aside", n, asides(t, fs))
	}
}

// A file of values that is gone, or cannot be opened, makes Pebble panic when it is read. In a turn that would count as the turn's fault,
// and meet it again after every start.
func TestStore_AFileOfValuesThatIsGoneIsDamage(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(s *Store) error{
		"get":  func(s *Store) error { _, _, err := s.get(1, "k1"); return err },
		"scan": func(s *Store) error { return s.Scan(1, "", func(string, []byte) error { return nil }) },
		"scan backwards": func(s *Store) error {
			return s.scanBack(1, "", func(string, []byte) (bool, error) { return true, nil })
		},
	} {
		for how, spoil := range map[string]func(*testing.T, *vfs.MemFS, string){"gone": remove, "damaged": damageEnd} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				fs := inOneTable(t)
				s, err := Open(Config{Dir: "state", FS: fs})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				spoil(t, fs, ".blob")
				checkReadFindsDamage(t, fs, s, read)
			})
		}
	}
}

// The panic of a visitor is the program's fault and not the files'.
func TestStore_PanicsOfOthersPass(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{FS: inOneTable(t)})
	defer func() {
		if p := recover(); p != "a visitor's" || hasFailed(s) {
			t.Errorf("recovered %v; the store has failed: %t", p, hasFailed(s))
		}
	}()
	_ = s.Scan(1, "", func(string, []byte) error { panic("a visitor's") })
}

func TestStore_ASectorThatCannotBeReadIsDamage(t *testing.T) {
	t.Parallel()
	mem := inOneTable(t)
	var broken atomic.Bool
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
			return syscall.EIO
		}
		return nil
	}))
	s, err := Open(Config{Dir: "state", FS: fs})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	broken.Store(true)
	if _, _, err := s.get(1, "k1"); !errors.Is(err, syscall.EIO) || !errors.Is(s.Err(), ErrDamaged) {
		t.Errorf("get gives %v and the store says %v", err, s.Err())
	}
	s.Close() // The sector may be met again.
}

// Damage to the log's middle is found when it is replayed; damage to its end looks like a crash, and costs the end.
func TestOpen_DamageInTheLogGivesAnEarlierMomentOrNothing(t *testing.T) {
	t.Parallel()
	for offset := 3; ; offset += 97 {
		fs := filled(t)
		data, err := fs.UnsafeGetFileDataBuffer(find(t, fs, ".log"))
		if err != nil {
			t.Fatal(err)
		}
		if offset >= len(data) {
			return
		}
		data[offset] ^= 0xff
		s, err := Open(Config{Dir: "state", FS: fs})
		if err != nil {
			t.Fatalf("byte %d: Open: %v", offset, err)
		}
		pos, found, err := s.Position(1)
		keys := int64(len(committedState(t, s, 1)))
		if err != nil || found && keys != pos.ChangelogNext-position(0).ChangelogNext+1 || !found && keys > 0 {
			t.Errorf("byte %d: %d keys at position %d, %t, %v", offset, keys, pos.ChangelogNext, found, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("byte %d: Close: %v", offset, err)
		}
	}
}

func TestOpen_KeepsTheNewestDamagedFilesAndNoOthers(t *testing.T) {
	t.Parallel()
	fs := filled(t)
	for _, old := range []string{"damaged-1600000000000", "damaged-1600000000001", "damaged-1600000000002"} {
		if err := fs.MkdirAll(path.Join("state", old), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	overwrite(t, fs, "MANIFEST-")
	openStore(t, Config{FS: fs})
	aside := asides(t, fs)
	if len(aside) != keptAsides || aside[0] <= "damaged-1600000000002" {
		t.Fatalf("kept %q, want the newest", aside)
	}
	names, err := fs.List(path.Join("state", aside[0]))
	if err != nil || len(names) < 4 {
		t.Errorf("it holds %q, %v", names, err)
	}
}

// The manifest says which files count. Pebble takes a damaged record of it for its end, and goes on with what it said before: then
// tables are missing whose log is long gone, and the position stands in the log that is there. Whatever is cut off or flipped, a
// store must be whole or empty.
func TestOpen_ADamagedManifestGivesAWholeStateOrNone(t *testing.T) {
	t.Parallel()
	size := func(fs *vfs.MemFS) (string, []byte) {
		name := find(t, fs, "MANIFEST-0")
		data, err := fs.UnsafeGetFileDataBuffer(name)
		if err != nil {
			t.Fatal(err)
		}
		return name, data
	}
	_, whole := size(filledAndFlushed(t, 5))
	for n := 0; n < len(whole); n += 19 {
		for _, how := range []string{"cut", "flipped"} {
			fs := filledAndFlushed(t, 5)
			name, data := size(fs)
			if n >= len(data) { // It is not the same length each time.
				continue
			}
			if how == "cut" {
				truncate(t, fs, name, n)
			} else {
				data[n] ^= 0x55
			}
			s, err := Open(Config{Dir: "state", FS: fs})
			if err != nil {
				t.Fatalf("%s at byte %d: Open: %v", how, n, err)
			}
			pos, found, err := s.Position(1)
			keys := len(committedState(t, s, 1))
			if err != nil || found && (keys != 100 || pos != position(99)) || !found && keys > 0 {
				t.Errorf("%s at byte %d: %d keys at position %d, %t, %v", how, n, keys, pos.ChangelogNext, found, err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	}
}

// While a table is being written its log is needed, and so is the next one, which is written to meanwhile. What is lost of the first
// log must not look like its end.
func TestOpen_ADamagedLogBeforeTheLastGivesAWholeStateOrNone(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	held, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			once.Do(func() { close(held) })
			<-hold
		}
		return nil
	}))
	s, err := Open(Config{Dir: "state", FS: fs, MemTableBytes: 256 << 10})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	written := int64(0)
	for ; ; written++ {
		if err := s.Restore(1, []Record{{Key: fmt.Sprint("k", written), Value: stored(strings.Repeat("v", 4096))}}, position(written)); err != nil {
			t.Fatalf("Restore: %v", err)
		}
		select {
		case <-held:
		default:
			continue
		}
		break
	}
	if err := s.Sync(); err != nil {
		t.Fatalf("Sync: %v", err)
	}
	crashed := func() *vfs.MemFS { return mem.CrashClone(vfs.CrashCloneCfg{}) }
	name := find(t, crashed(), logSuffix)
	data, err := crashed().UnsafeGetFileDataBuffer(name)
	if err != nil {
		t.Fatal(err)
	}
	size := len(data)
	for at := -1; at < size; at += 1 + size/40 {
		for _, how := range []string{"cut", "flipped"} {
			fs := crashed()
			switch {
			case at < 0 && how == "cut": // As it is.
			case at < 0:
				if err := fs.Remove(name); err != nil {
					t.Fatal(err)
				}
			case how == "cut":
				truncate(t, fs, name, at)
			default:
				data, err := fs.UnsafeGetFileDataBuffer(name)
				if err != nil {
					t.Fatal(err)
				}
				data[at] ^= 0x55
			}
			damaged, err := Open(Config{Dir: "state", FS: fs})
			if err != nil {
				t.Fatalf("%s at byte %d: Open: %v", how, at, err)
			}
			pos, found, err := damaged.Position(1)
			keys := int64(len(committedState(t, damaged, 1)))
			if err != nil || found && keys != pos.ChangelogNext+1 || !found && keys > 0 || at < 0 && how == "cut" && keys != written+1 {
				t.Errorf("%s at byte %d: %d keys at position %d, %t, %v", how, at, keys, pos.ChangelogNext, found, err)
			}
			if err := damaged.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	}
	close(hold)
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// A crash while damaged files are moved leaves some here and some there: what is left must not be taken for sound.
func TestOpen_FinishesSettingAsideAfterACrash(t *testing.T) {
	t.Parallel()
	for n := int32(0); ; n++ {
		mem := filled(t)
		overwrite(t, mem, "MANIFEST-")
		left := n
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind != errorfs.OpRename {
				return nil
			}
			if left--; left < 0 {
				return errorfs.ErrInjected
			}
			return nil
		}))
		s, err := Open(Config{Dir: "state", FS: fs})
		if err == nil {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if n < 5 {
				t.Errorf("only %d files were moved", n)
			}
			return
		}
		next := openStore(t, Config{FS: mem})
		if keys := len(committedState(t, next, 1)); keys != 0 {
			t.Errorf("a crash at file %d leaves %d keys", n, keys)
		}
	}
}

// fullDisk is a disk without room for another byte until a file with the part in its name is removed.
type fullDisk struct {
	full atomic.Bool
	part string
}

func (d *fullDisk) on(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		removes := op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpRemoveAll
		if removes && d.part != "" && strings.Contains(op.Path, d.part) {
			d.full.Store(false)
		}
		writes := []errorfs.OpKind{
			errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpMkdirAll,
		}
		if d.full.Load() && slices.Contains(writes, op.Kind) && op.Path != "state" && !strings.HasSuffix(op.Path, lockFile) {
			return syscall.ENOSPC
		}
		return nil
	}))
}

// The disk fills up while the store is in use: whoever runs it hears of it, in order, and nothing hangs.
func TestStore_AFullDiskEndsItWithAReason(t *testing.T) {
	t.Parallel()
	mem, disk := vfs.NewMem(), &fullDisk{}
	s, err := Open(Config{Dir: "state", FS: disk.on(mem), MemTableBytes: 256 << 10})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if err := s.Restore(1, []Record{{Key: "a", Value: stored("1")}}, position(1)); err != nil {
		t.Fatalf("Restore: %v", err)
	}
	if err := s.Sync(); err != nil {
		t.Fatalf("Sync: %v", err)
	}
	disk.full.Store(true)
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		for i := int64(2); !hasFailed(s); i++ {
			if err := s.Restore(1, []Record{{Key: fmt.Sprint("k", i), Value: stored(strings.Repeat("v", 32<<10))}}, position(i)); err != nil {
				t.Errorf("Restore: %v", err)
				return
			}
		}
	}()
	<-s.Failed()
	if !errors.Is(s.Err(), ErrDisk) || !errors.Is(s.Err(), syscall.ENOSPC) {
		t.Errorf("the store says %v", s.Err())
	}
	if s.disk.parked.Load() == 0 {
		t.Error("no write waits for room")
	}
	disk.full.Store(false) // A process would have ended; here the writes that wait go through, so that the store can be closed.
	<-writing
	for s.disk.parked.Load() > 0 {
		<-time.After(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	next := openStore(t, Config{FS: mem})
	if got := committedState(t, next, 1)["a"]; got != string(stored("1")) {
		t.Errorf("with room again, the store has %q of what was synced", got)
	}
}

func TestOpen_MakesRoomOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, part string
		keys       int
		fails      bool
	}{
		{"damaged files go first, and the state stays", "damaged-1", 100, false},
		{"then the state goes", ".sst", 0, false},
		{"if that does not help, it says so", "", 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			mem, disk := filled(t), &fullDisk{part: tc.part}
			if err := mem.MkdirAll(path.Join("state", "damaged-1600000000000"), 0o755); err != nil {
				t.Fatal(err)
			}
			disk.full.Store(true)
			s, err := Open(Config{Dir: "state", FS: disk.on(mem)})
			if tc.fails {
				if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrLocked) {
					t.Errorf("Open gives %v, want no space left", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			if n := len(committedState(t, s, 1)); n != tc.keys || len(asides(t, mem)) > 0 {
				t.Errorf("%d keys, want %d; set aside: %q", n, tc.keys, asides(t, mem))
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}
