package statestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

var (
	// ErrDamaged says that files of the store were found damaged while it was in use. The next Open sets them aside.
	ErrDamaged = errors.New("files of the state store are damaged; they are set aside at the next start, and the state is restored from the changelog")
	// ErrDisk says that the disk does not take what is written.
	ErrDisk = errors.New("the disk does not take what the state store writes")
)

// fault is the first thing that keeps a store from going on. Pebble reports from goroutines of its own, so whoever runs the
// store watches Failed.
type fault struct {
	cfg    Config
	failed chan struct{}
	// dead is set when Pebble itself cannot be used any more, not even to close it.
	dead atomic.Bool

	mu struct {
		sync.Mutex
		err error
	}
}

func newFault(cfg Config) *fault { return &fault{cfg: cfg, failed: make(chan struct{})} }

func (f *fault) cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.err
}

// raise notes a fault; the first counts. Whoever watches the store says so in the log.
func (f *fault) raise(err error) {
	f.mu.Lock()
	first := f.mu.err == nil
	if first {
		f.mu.err = err
	}
	f.mu.Unlock()
	if !first {
		return
	}
	if errors.Is(err, ErrDamaged) {
		if markErr := markDamaged(f.cfg, err); markErr != nil {
			f.mu.Lock()
			f.mu.err = fmt.Errorf("%w; the damage could not be noted: %w", err, markErr)
			f.mu.Unlock()
		}
	}
	close(f.failed)
}

// read passes on the error of a read. What is neither the machine's refusal nor a closed store is damage: a checksum that does
// not fit, a file that is gone, a sector that cannot be read. No turn may be decided from what else is in such files.
func (f *fault) read(err error) error {
	if err != nil && !refused(err) && !errors.Is(err, pebble.ErrClosed) {
		f.raise(fmt.Errorf("%w: %w", ErrDamaged, err))
	}
	return err
}

func (f *fault) listener() *pebble.EventListener {
	return &pebble.EventListener{
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			f.raise(fmt.Errorf("%w: %s: %w", ErrDamaged, info.Path, info.Details))
		},
		BackgroundError: func(err error) {
			switch {
			case pebble.IsCorruptionError(err):
				f.raise(fmt.Errorf("%w: %w", ErrDamaged, err))
			case refused(err) && !isFull(err): // Too many open files, say: Pebble tries again.
				f.cfg.Logger.ErrorContext(context.Background(), "state store is refused its files", slog.Any("error", err)) //nolint:forbidigo // Pebble gives no context.
			default:
				f.raise(fmt.Errorf("%w: %w", ErrDisk, err))
			}
		},
		LowDiskSpace: func(info pebble.LowDiskSpaceInfo) {
			f.cfg.Logger.WarnContext(context.Background(), "disk of the state store is nearly full", //nolint:forbidigo // Pebble gives no context.
				slog.Uint64("free_bytes", info.AvailBytes), slog.Uint64("total_bytes", info.TotalBytes))
		},
	}
}

// pebbleLogger keeps Pebble from ending the process: its default logger exits on Fatalf.
type pebbleLogger struct {
	l     *slog.Logger
	fault *fault
}

func (p pebbleLogger) Infof(format string, args ...any) {
	p.l.DebugContext(context.Background(), "pebble", slog.String("detail", fmt.Sprintf(format, args...))) //nolint:forbidigo // Pebble gives no context.
}

func (p pebbleLogger) Errorf(format string, args ...any) {
	p.l.ErrorContext(context.Background(), "pebble reports an error", slog.String("detail", fmt.Sprintf(format, args...))) //nolint:forbidigo // Pebble gives no context.
}

// Fatalf ends the goroutine: Pebble relies on it not to return. What the goroutine had deferred runs, the store is dead, and
// whoever watches Failed ends the process in order, which a panic or an exit from here would not.
func (p pebbleLogger) Fatalf(format string, args ...any) {
	p.fault.dead.Store(true)
	p.fault.raise(fmt.Errorf("%w: %s", ErrDisk, fmt.Sprintf(format, args...)))
	runtime.Goexit()
}
