package statestore

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system under a store that is in use. Pebble cannot live with a write that fails: from some it crashes the
// process with a lock in the wrong state, so that nobody learns that the disk was full. Here such a write raises the fault, by
// which the process ends in order, and does not return until it has succeeded after all.
type disk struct {
	vfs.FS

	fault *fault
	// live is set once the store is open: until then errors are returned, and Open deals with them.
	live atomic.Bool
	// parked counts the writes that wait.
	parked atomic.Int32
	notes  *ledger
}

// diskRetry is how often a write that failed is tried again while the process ends.
const diskRetry = 100 * time.Millisecond

// insist does what op does until it succeeds.
func (d *disk) insist(op func() error) error {
	err := op()
	if err == nil || !d.live.Load() || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	d.parked.Add(1)
	defer d.parked.Add(-1)
	d.fault.raise(fmt.Errorf("%w: %w", ErrDisk, err))
	tick := time.NewTicker(diskRetry)
	defer tick.Stop()
	for err != nil {
		<-tick.C
		err = op()
	}
	return nil
}

// file makes or opens a file, and looks after what is written to it.
func (d *disk) file(name string, open func() (vfs.File, error)) (vfs.File, error) {
	base := d.PathBase(name)
	noted := ""
	if isSummed(base) {
		noted = base
		d.notes.begin(base)
	}
	if strings.HasSuffix(base, logSuffix) { // Nothing is written to the log before this one any more.
		if err := d.writeNote(name); err != nil {
			return nil, err
		}
	}
	var f vfs.File
	err := d.insist(func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &diskFile{File: f, disk: d, noted: noted}
	if isTable(base) {
		out.gathered = make([]byte, 0, gatherBytes)
	}
	if isValues(base) {
		out.values = name
	}
	return out, nil
}

// gatherBytes is how much of a table is written at once. Pebble writes a block of 4 KB at a time.
const gatherBytes = 128 << 10

// isTable reports whether a file is written once, from its begin to its end, and read only after it was closed.
func isTable(name string) bool { return strings.HasSuffix(name, tableSuffix) || isValues(name) }

func (d *disk) writeNote(beside string) error {
	return d.insist(func() error { return d.notes.write(d.FS, d.PathDir(beside)) })
}

// Create implements vfs.FS.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(name, func() (vfs.File, error) { return d.FS.Create(name, category) })
}

// ReuseForWrite implements vfs.FS.
func (d *disk) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (vfs.File, error) {
	d.notes.end(d.PathBase(oldName))
	return d.file(newName, func() (vfs.File, error) { return d.FS.ReuseForWrite(oldName, newName, category) })
}

// Remove implements vfs.FS.
func (d *disk) Remove(name string) error {
	d.notes.end(d.PathBase(name))
	if strings.HasSuffix(name, logSuffix) || isValues(name) {
		if err := d.writeNote(name); err != nil {
			return err
		}
	}
	if err := d.FS.Remove(name); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// OpenReadWrite implements vfs.FS.
func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return d.file(name, func() (vfs.File, error) { return d.FS.OpenReadWrite(name, category, opts...) })
}

// OpenDir implements vfs.FS: a directory is opened to be synced.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: d}, nil
}

// Link implements vfs.FS.
func (d *disk) Link(oldName, newName string) error {
	return d.insist(func() error { return d.FS.Link(oldName, newName) })
}

// Rename implements vfs.FS.
func (d *disk) Rename(oldName, newName string) error {
	return d.insist(func() error { return d.FS.Rename(oldName, newName) })
}

// MkdirAll implements vfs.FS.
func (d *disk) MkdirAll(name string, perm os.FileMode) error {
	return d.insist(func() error { return d.FS.MkdirAll(name, perm) })
}

// Unwrap implements vfs.FS.
func (d *disk) Unwrap() vfs.FS { return d.FS }

// diskFile is a file that is written to.
type diskFile struct {
	vfs.File

	disk *disk
	// noted is the file's name if what is written to it is noted.
	noted string
	// values is the file's path if it holds long values.
	values string
	// gathered is what is yet to be written of a table; nil for other files.
	gathered []byte
	// size is how much was written.
	size int64
}

// Write implements vfs.File. What is written to a table is gathered.
func (f *diskFile) Write(p []byte) (int, error) {
	if f.gathered == nil {
		return f.write(p)
	}
	if len(f.gathered)+len(p) > gatherBytes {
		if err := f.flush(); err != nil {
			return 0, err
		}
	}
	if len(p) > gatherBytes {
		return f.write(p)
	}
	f.gathered = append(f.gathered, p...)
	return len(p), nil
}

// flush writes what was gathered.
func (f *diskFile) flush() error {
	if len(f.gathered) == 0 {
		return nil
	}
	_, err := f.write(f.gathered)
	f.gathered = f.gathered[:0]
	return err
}

// write writes all of p. What was written of a part is not written again.
func (f *diskFile) write(p []byte) (int, error) {
	if f.noted != "" { // Now, since the file system may change what it is given.
		f.disk.notes.wrote(f.noted, p)
	}
	done := 0
	err := f.disk.insist(func() error {
		n, err := f.File.Write(p[done:])
		done += n
		return err
	})
	f.size += int64(done)
	return done, err
}

// WriteAt implements vfs.File.
func (f *diskFile) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.disk.insist(func() (err error) {
		n, err = f.File.WriteAt(p, at)
		return err
	})
	return n, err
}

// Preallocate implements vfs.File.
func (f *diskFile) Preallocate(offset, length int64) error {
	return f.disk.insist(func() error { return f.File.Preallocate(offset, length) })
}

// Close implements vfs.File.
func (f *diskFile) Close() error {
	err := errors.Join(f.flush(), f.File.Close())
	if err != nil || f.values == "" {
		return err
	}
	f.disk.notes.whole(f.disk.PathBase(f.values), f.size)
	return f.disk.writeNote(f.values)
}

// Stat implements vfs.File.
func (f *diskFile) Stat() (vfs.FileInfo, error) {
	if err := f.flush(); err != nil {
		return nil, err
	}
	return f.File.Stat() //nolint:wrapcheck // Pebble knows the errors of a file system.
}

// flushed does what op does, once what was gathered is written.
func (f *diskFile) flushed(op func() error) error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.disk.insist(op)
}

// Sync implements vfs.File.
func (f *diskFile) Sync() error { return f.flushed(f.File.Sync) }

// SyncData implements vfs.File.
func (f *diskFile) SyncData() error { return f.flushed(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *diskFile) SyncTo(length int64) (full bool, err error) {
	err = f.flushed(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}
