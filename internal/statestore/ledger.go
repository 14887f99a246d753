package statestore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble takes a damaged record of its manifest for the manifest's end, and the end of a log for the end of what was written to
// it. Where more follows, a next log or tables whose own log is long gone, it would open with a hole in the state, and with a
// position behind the hole. So length and checksum of manifests and of all logs but the last are noted in a file beside them,
// before anything is written to a next log, and before a log is removed; the next Open holds the files against the note. The last
// log needs none: what it may lose is the end of everything.
//
// Files of values are noted for another reason. Pebble opens one only when a value of it is read, and panics if it is missing or cannot
// be opened, be it in a compaction (v2.1.7, DB.reportCorruption). So whether they are there is to be found before. One is noted when it is
// whole, before any table can refer to it, until right before it is removed.

const (
	manifestPrefix = "MANIFEST-"
	logSuffix      = ".log"
	tableSuffix    = ".sst"
	// valueSuffix ends the names of files that hold the long values of tables.
	valueSuffix = ".blob"
	noteFile    = "written.check"
)

// ledger knows what was written to the manifests and logs of a store.
type ledger struct {
	// writing is held while the note is written, which is seldom: two writers would mix their notes.
	writing sync.Mutex

	mu struct {
		sync.Mutex
		sums map[string]sum
		// last is the log that is written to.
		last string
	}
}

type sum struct {
	size int64
	crc  uint32
}

// loadLedger begins with what the last process noted: its logs are needed until Pebble removes them.
func loadLedger(cfg Config) (*ledger, error) {
	sums, err := readNote(cfg)
	if err != nil {
		return nil, err
	}
	n := &ledger{}
	n.mu.sums = sums
	return n, nil
}

func isNoted(name string) bool { return isSummed(name) || isValues(name) }

// isSummed reports whether what is written to a file is noted.
func isSummed(name string) bool {
	return strings.HasPrefix(name, manifestPrefix) || strings.HasSuffix(name, logSuffix)
}

// isValues reports whether a file holds the long values of tables.
func isValues(name string) bool { return strings.HasSuffix(name, valueSuffix) }

// whole takes a file of values that is written and closed.
func (n *ledger) whole(name string, size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.sums[name] = sum{size: size}
}

// begin takes a file that is to be made.
func (n *ledger) begin(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.sums[name] = sum{}
	if strings.HasSuffix(name, logSuffix) {
		n.mu.last = name
	}
}

func (n *ledger) wrote(name string, p []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.mu.sums[name]
	n.mu.sums[name] = sum{size: s.size + int64(len(p)), crc: crc32.Update(s.crc, crc32.IEEETable, p)}
}

// end takes a file that is to be removed.
func (n *ledger) end(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.mu.sums, name)
}

func (n *ledger) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.mu.sums)) {
		if name != n.mu.last {
			fmt.Fprintf(&b, "%s %d %08x\n", name, n.mu.sums[name].size, n.mu.sums[name].crc)
		}
	}
	return b.String()
}

// write writes the note. It is whole or the one before, whenever the process dies.
func (n *ledger) write(fs vfs.FS, dir string) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	name := fs.PathJoin(dir, noteFile)
	if err := writeFile(fs, name+".new", n.text()); err != nil {
		return err
	}
	if err := fs.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func readNote(cfg Config) (map[string]sum, error) {
	sums := make(map[string]sum)
	note, err := readFile(cfg.FS, cfg.FS.PathJoin(cfg.Dir, noteFile))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return sums, nil
		}
		return nil, err
	}
	for line := range strings.Lines(string(note)) {
		var name string
		var s sum
		if _, err := fmt.Sscanf(line, "%s %d %x", &name, &s.size, &s.crc); err != nil || !isNoted(name) {
			return nil, fmt.Errorf("%w: the note of what was written cannot be read", errDamaged)
		}
		sums[name] = s
	}
	return sums, nil
}

// checkNote holds the files against the note. Of the manifests only the one that the marker names counts; one without a note was
// made just before the process died.
func checkNote(cfg Config, manifest string) error {
	sums, err := readNote(cfg)
	if err != nil {
		return err
	}
	for name, want := range sums {
		if strings.HasPrefix(name, manifestPrefix) && name != manifest {
			continue
		}
		if isValues(name) {
			if err := checkValues(cfg, name, want.size); err != nil {
				return err
			}
			continue
		}
		data, err := readFile(cfg.FS, cfg.FS.PathJoin(cfg.Dir, name))
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %s is missing", errDamaged, name)
		}
		if err != nil {
			return err
		}
		if int64(len(data)) < want.size || crc32.ChecksumIEEE(data[:want.size]) != want.crc {
			return fmt.Errorf("%w: %s is not what was written", errDamaged, name)
		}
	}
	return nil
}

func writeFile(fs vfs.FS, name, text string) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	_, err = f.Write([]byte(text))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func readFile(fs vfs.FS, name string) (data []byte, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	data, err = io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}
