package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lathe-run/lathe/internal/statestore"
)

// The switches are files in the folder that EnvSwitches names.
const (
	// SwitchClock holds a duration that the worker's clock is off by.
	SwitchClock = "clock"
	// SwitchFull says, by being there, that there is no space left on the disk.
	SwitchFull = "full"
)

// switchInterval is how often the switches are looked at.
const switchInterval = 20 * time.Millisecond

// switches are what the torturer has set.
type switches struct {
	dir    string
	offset atomic.Int64
	full   atomic.Bool
}

func newSwitches(dir string) *switches {
	s := &switches{dir: dir}
	s.look()
	return s
}

// watch follows the switches until ctx ends.
func (s *switches) watch(ctx context.Context) {
	tick := time.NewTicker(switchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.look()
		case <-ctx.Done():
			return
		}
	}
}

func (s *switches) look() {
	if s.dir == "" {
		return
	}
	_, err := os.Stat(filepath.Join(s.dir, SwitchFull)) //nolint:gosec // the torturer names the folder
	s.full.Store(err == nil)
	raw, err := os.ReadFile(filepath.Join(s.dir, SwitchClock)) //nolint:gosec // the torturer names the folder
	if os.IsNotExist(err) {
		s.offset.Store(0)
		return
	}
	if d, err := time.ParseDuration(string(raw)); err == nil { // Else it is just being written.
		s.offset.Store(int64(d))
	}
}

// now is the clock of the worker.
func (s *switches) now() time.Time { return time.Now().Add(time.Duration(s.offset.Load())) }

// store puts the local state on a disk that can be full.
func (s *switches) store(cfg *statestore.Config) {
	release(cfg)
	cfg.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !s.full.Load() {
			return nil
		}
		switch op.Kind { //nolint:exhaustive // what needs space, of all that there is
		case errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpMkdirAll, errorfs.OpFilePreallocate, errorfs.OpFileWrite, errorfs.OpFileWriteAt,
			errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileFlush:
			return fmt.Errorf("%s %s: %w", "write", op.Path, syscall.ENOSPC)
		}
		return nil
	}))
}

// SetClock moves the clock of a worker; 0 sets it right.
func SetClock(dir string, by time.Duration) error {
	return set(dir, SwitchClock, by != 0, by.String())
}

// SetFull fills the disk of a worker, or makes space.
func SetFull(dir string, full bool) error { return set(dir, SwitchFull, full, "") }

func set(dir, name string, on bool, value string) error {
	path := filepath.Join(dir, name)
	if !on {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("turn the switch %s: %w", name, err)
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("turn the switch %s: %w", name, err)
	}
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		return fmt.Errorf("turn the switch %s: %w", name, err)
	}
	return nil
}
