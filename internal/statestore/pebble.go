package statestore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleLogger keeps Pebble from ending the process: its default logger exits on Fatalf.
type pebbleLogger struct{ l *slog.Logger }

func (p pebbleLogger) Infof(format string, args ...any) {
	p.l.DebugContext(context.Background(), "pebble", slog.String("detail", fmt.Sprintf(format, args...))) //nolint:forbidigo // Pebble gives no context.
}

func (p pebbleLogger) Errorf(format string, args ...any) {
	p.l.ErrorContext(context.Background(), "pebble reports an error", slog.String("detail", fmt.Sprintf(format, args...))) //nolint:forbidigo // Pebble gives no context.
}

// Fatalf panics: Pebble relies on it not to return. The worker's top level turns the panic into an exit that says why; the
// next start moves damaged files aside and restores from the changelog.
func (p pebbleLogger) Fatalf(format string, args ...any) {
	panic("pebble: " + fmt.Sprintf(format, args...))
}

func corruptionListener(cfg Config) *pebble.EventListener {
	return &pebble.EventListener{
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			err := fmt.Errorf("state store is damaged at %s: %w", info.Path, info.Details)
			cfg.Logger.ErrorContext(context.Background(), "state store is damaged", slog.Any("error", err)) //nolint:forbidigo // Pebble gives no context.
			if cfg.Corrupt != nil {
				cfg.Corrupt(err)
			}
		},
		BackgroundError: func(err error) {
			cfg.Logger.ErrorContext(context.Background(), "state store background work failed", slog.Any("error", err)) //nolint:forbidigo // Pebble gives no context.
		},
	}
}

// quarantine moves the directory aside under a name that tells when.
func quarantine(fs vfs.FS, dir string) (string, error) {
	aside := fmt.Sprintf("%s.damaged-%d", strings.TrimRight(dir, "/"), time.Now().UnixMilli())
	if err := fs.Rename(dir, aside); err != nil {
		return "", fmt.Errorf("move the damaged directory aside: %w", err)
	}
	return aside, nil
}

func logQuarantine(l *slog.Logger, err error, aside string) {
	l.ErrorContext(context.Background(), "state store cannot be opened; it is moved aside and restored from the changelog", //nolint:forbidigo // Open takes no context.
		slog.Any("error", err), slog.String("moved_to", aside))
}
