// Package statestore keeps the state of partitions: a Pebble database that holds what was committed, and for each assigned
// partition the effects that are not committed yet. A Partition reads through its uncommitted effects, so its users see one
// state, the newest; the database only ever holds what Kafka has committed.
//
// The changelog topic is the log of this store: Pebble may lose the end of its own log when the process is killed and is
// brought up to date from the changelog. Bytes in the changelog and bytes in Pebble are the same, save that Pebble's keys are
// prefixed with the partition.
package statestore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	// ErrGone says that the partition is no longer this worker's: its uncommitted effects were dropped.
	ErrGone = errors.New("the partition is gone")
	// ErrDropped says that the effect was taken out of the queue before it was committed.
	ErrDropped = errors.New("the effect is dropped")
	// ErrStale says that what an effect comes of may have been dropped since it was read.
	ErrStale = errors.New("what was read is dropped")
	// ErrLocked says that another process has the data directory open.
	ErrLocked = errors.New("another process holds the data directory")
	// errDamaged says that Pebble cannot make sense of its files.
	errDamaged = errors.New("the files are damaged")
)

// Config configures a Store.
type Config struct {
	// Dir is the data directory. It is made when missing.
	Dir string
	// CacheBytes is the size of the block cache; 0 is 64 MiB.
	CacheBytes int64
	// MemTableBytes is the size of one memtable; 0 is 16 MiB.
	MemTableBytes uint64
	// RecordBytes bounds one changelog record's value; 0 is 900 KiB. Logs are split at it.
	RecordBytes int
	// Age says how a value ages; nothing does when it is nil or gives false. It is called for each value that is written, and is
	// part of what the local state means: with another, the partition is to be restored.
	Age func(key string, value []byte) (Aged, bool)
	// Formats are the versions of stored values; the zero value is this release's.
	Formats Formats
	// FS is the file system; nil is the operating system's.
	FS vfs.FS
	// Logger takes what Pebble has to say.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.CacheBytes == 0 {
		c.CacheBytes = 64 << 20
	}
	if c.MemTableBytes == 0 {
		c.MemTableBytes = 16 << 20
	}
	if c.RecordBytes == 0 {
		c.RecordBytes = 900 << 10
	}
	c.Formats = c.Formats.withDefaults()
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Store is one Pebble database for all partitions of a process. It is safe for concurrent use.
type Store struct {
	db    *pebble.DB
	lock  *pebble.Lock
	cfg   Config
	disk  *disk
	fault *fault
}

// Open opens the store, restoring what its log holds. A directory that another process has open gives ErrLocked and is left
// as it is. One whose files are damaged, or were found damaged by the last process, is emptied into a folder of its own, since
// the changelog has everything; so is the state given up when the disk is so full that it cannot even be opened.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Formats.validate(); err != nil {
		return nil, err
	}
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	lock, err := lockDirectory(cfg)
	if err != nil {
		return nil, err
	}
	s, err := openOrRepair(cfg, lock)
	if err != nil {
		return nil, fmt.Errorf("open state store in %s: %w", cfg.Dir, errors.Join(err, lock.Close()))
	}
	return s, nil
}

// openOrRepair tries again after each repair there is. Every repair makes the directory smaller, so it ends.
func openOrRepair(cfg Config, lock *pebble.Lock) (*Store, error) {
	s, err := open(cfg, lock)
	for _, repair := range []func(Config, error) (bool, error){setAside, dropAsides, dropState} {
		if err == nil {
			return s, nil
		}
		done, repairErr := repair(cfg, err)
		if repairErr != nil {
			return nil, errors.Join(err, repairErr)
		}
		if done {
			s, err = open(cfg, lock)
		}
	}
	return s, err
}

// open opens what is there. The directory's lock is held, so that a second process and a damaged file are told apart for
// certain.
func open(cfg Config, lock *pebble.Lock) (*Store, error) {
	if err := checkFiles(cfg); err != nil {
		return nil, err
	}
	n, err := loadLedger(cfg)
	if err != nil {
		return nil, err
	}
	f := newFault(cfg)
	d := &disk{FS: cfg.FS, fault: f, notes: n}
	db, err := pebble.Open(cfg.Dir, pebbleOptions(cfg, d, lock, f))
	if err != nil {
		if !refused(err) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return nil, err
	}
	d.live.Store(true)
	return &Store{db: db, lock: lock, cfg: cfg, disk: d, fault: f}, nil
}

func lockDirectory(cfg Config) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(cfg.Dir, cfg.FS)
	if err == nil {
		return lock, nil
	}
	if _, ok := errors.AsType[*os.PathError](err); ok { // The lock file could not be made; nobody holds it.
		return nil, fmt.Errorf("lock the data directory %s: %w", cfg.Dir, err)
	}
	return nil, fmt.Errorf("lock the data directory %s: %w: %w", cfg.Dir, ErrLocked, err)
}

// refused reports whether err says that the machine would not serve the files, which says nothing about what is in them.
func refused(err error) bool {
	return isFull(err) || isOneOf(err, os.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.EROFS)
}

// isFull reports whether err says that there is no room.
func isFull(err error) bool { return isOneOf(err, syscall.ENOSPC, syscall.EDQUOT) }

func isOneOf(err error, causes ...error) bool {
	for _, cause := range causes {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// diskFormat is the version of Pebble's own files. It only goes up, and a release whose Pebble does not know it cannot open them: it
// sets them aside and restores. So it is raised a release after Pebble was, and not by an upgrade of the library.
const diskFormat = pebble.FormatValueSeparation

func pebbleOptions(cfg Config, d *disk, lock *pebble.Lock, f *fault) *pebble.Options {
	opts := &pebble.Options{
		CacheSize:                   cfg.CacheBytes,
		FS:                          d,
		Comparer:                    comparer(),
		Lock:                        lock,
		FormatMajorVersion:          diskFormat,
		MemTableSize:                cfg.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		LBaseMaxBytes:               512 << 20,
		L0StopWritesThreshold:       48,
		BytesPerSync:                512 << 10,
		WALBytesPerSync:             512 << 10,
		Logger:                      pebbleLogger{cfg.Logger, f},
		EventListener:               f.listener(),
	}
	opts.Experimental.ValueSeparationPolicy = separateValues
	for i := range opts.Levels {
		opts.TargetFileSizes[i] = tableBytes
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		if i < len(opts.Levels)-1 { // Most of what is written is soon rewritten or deleted; only the last level is worth compressing.
			opts.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
		}
	}
	return opts
}

// tableBytes is so much that a flush makes one table: a look-up opens one of each flush that was not compacted yet.
const tableBytes = 32 << 20

// separateFrom is the size in bytes from which values are kept in files of their own.
const separateFrom = 512

// separateValues keeps what sessions said out of the tables, so that compactions move keys alone. They are cheap then and can come
// early, which leaves few tables to look into. A file of values is written anew when a fifth of it is of no use any more; that a table
// refers to many of them is no reason, since no one reads values in order.
func separateValues() pebble.ValueSeparationPolicy {
	return pebble.ValueSeparationPolicy{
		Enabled: true, MinimumSize: separateFrom, MaxBlobReferenceDepth: 100, TargetGarbageRatio: 0.2, RewriteMinimumAge: time.Minute,
	}
}

// Close flushes Pebble's log and closes it. Partitions must have been detached. After a fault that left Pebble unusable, or with
// writes that the disk does not take, it only lets go of the directory: the changelog has what was not flushed, and the process
// has to end.
func (s *Store) Close() error {
	if s.fault.dead.Load() || s.disk.parked.Load() > 0 {
		if err := s.lock.Close(); err != nil {
			return fmt.Errorf("unlock the data directory: %w", err)
		}
		return nil
	}
	err := errors.Join(s.db.LogData(nil, pebble.Sync), s.db.Close(), s.lock.Close())
	if err != nil {
		return fmt.Errorf("close state store: %w", err)
	}
	return nil
}

// Sync makes what was committed so far survive a kill, so that a restarted process replays only the tail of its changelog.
func (s *Store) Sync() error {
	if err := s.db.LogData(nil, pebble.Sync); err != nil {
		return fmt.Errorf("sync state store: %w", err)
	}
	return nil
}

// Failed is closed when the store cannot go on: its files are damaged, or the disk does not take what is written. The process
// has to end then; the next Open repairs what can be repaired.
func (s *Store) Failed() <-chan struct{} { return s.fault.failed }

// Err says why the store cannot go on; nil while it can.
func (s *Store) Err() error { return s.fault.cause() }
