package statestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// damageMark is the file that notes damage found while the store was in use: Pebble reads a block only when it is needed,
	// so that opening the store again would not find it.
	damageMark = "DAMAGED"
	// asidePrefix begins the names of the folders that damaged files are moved to.
	asidePrefix = "damaged-"
	// keptAsides is how many of them are kept for a person to look at; each may be as large as the state.
	keptAsides = 1
	lockFile   = "LOCK"
	// markerPrefix begins the names of Pebble's markers, which say in their names what a CURRENT file would hold.
	markerPrefix   = "marker."
	manifestMarker = markerPrefix + "manifest." // then a number that rises, a dot, and the manifest
)

// checkFiles finds what Pebble would take for an empty directory, or for a sound one.
func checkFiles(cfg Config) error {
	names, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		return fmt.Errorf("list the data directory: %w", err)
	}
	tables, marker := false, ""
	for _, name := range names {
		switch {
		case name == damageMark:
			return fmt.Errorf("%w: the last process found it so", errDamaged)
		case strings.HasPrefix(name, manifestMarker):
			marker = max(marker, name)
		case isTable(name), strings.HasSuffix(name, logSuffix), strings.HasPrefix(name, manifestPrefix):
			tables = true
		}
	}
	if marker == "" {
		if tables {
			return fmt.Errorf("%w: the file that names the manifest is missing", errDamaged)
		}
		return nil
	}
	_, manifest, _ := strings.Cut(strings.TrimPrefix(marker, manifestMarker), ".")
	return checkNote(cfg, manifest)
}

// markDamaged writes the mark, with the reason for a person to read.
func markDamaged(cfg Config, reason error) error {
	return writeFile(cfg.FS, cfg.FS.PathJoin(cfg.Dir, damageMark), reason.Error()+"\n")
}

// setAside moves damaged files into a folder inside the directory, which works where the directory is a mount of its own, and
// removes older such folders. The mark comes first and is moved last, so that a crash in between leaves nothing that could be
// taken for sound.
func setAside(cfg Config, cause error) (bool, error) {
	if !errors.Is(cause, errDamaged) {
		return false, nil
	}
	names, err := stateFiles(cfg)
	if err != nil {
		return false, err
	}
	if !slices.Contains(names, damageMark) {
		if err := markDamaged(cfg, cause); err != nil && !isFull(err) {
			return false, err
		}
	}
	aside := cfg.FS.PathJoin(cfg.Dir, fmt.Sprintf("%s%d", asidePrefix, time.Now().UnixMilli()))
	if err := cfg.FS.MkdirAll(aside, 0o755); isFull(err) {
		return dropState(cfg, errors.Join(cause, err))
	} else if err != nil {
		return false, fmt.Errorf("make a folder for damaged files: %w", err)
	}
	for _, name := range names {
		if name == damageMark {
			continue
		}
		if err := cfg.FS.Rename(cfg.FS.PathJoin(cfg.Dir, name), cfg.FS.PathJoin(aside, name)); err != nil {
			return false, fmt.Errorf("move damaged files aside: %w", err)
		}
	}
	if err := cfg.FS.Rename(cfg.FS.PathJoin(cfg.Dir, damageMark), cfg.FS.PathJoin(aside, damageMark)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("move damaged files aside: %w", err)
	}
	cfg.Logger.ErrorContext(context.Background(), "state store is damaged; its files are set aside and the state is restored from the changelog", //nolint:forbidigo // Open takes no context.
		slog.Any("error", cause), slog.String("moved_to", aside))
	_, err = removeAsides(cfg, keptAsides)
	return true, err
}

// dropAsides makes room on a full disk by removing all damaged files.
func dropAsides(cfg Config, cause error) (bool, error) {
	if !isFull(cause) {
		return false, nil
	}
	n, err := removeAsides(cfg, 0)
	if n > 0 {
		cfg.Logger.WarnContext(context.Background(), "disk is full; damaged files that were set aside are removed", slog.Int("folders", n)) //nolint:forbidigo // As above.
	}
	return n > 0, err
}

// dropState makes room on a full disk by removing the local state. It is a copy: what a worker of these partitions needs comes
// back from the changelog, and what belongs to partitions that went elsewhere does not.
func dropState(cfg Config, cause error) (bool, error) {
	if !isFull(cause) {
		return false, nil
	}
	cfg.Logger.ErrorContext(context.Background(), "disk is too full to open the state store; the local state is removed and restored from the changelog", //nolint:forbidigo // As above.
		slog.Any("error", cause))
	names, err := stateFiles(cfg)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if err := cfg.FS.Remove(cfg.FS.PathJoin(cfg.Dir, name)); err != nil {
			return false, fmt.Errorf("remove the local state: %w", err)
		}
	}
	return true, nil
}

// stateFiles are the files of the store, without its lock and what was set aside. The markers come first: without them what a
// crash leaves behind is not taken for sound.
func stateFiles(cfg Config) ([]string, error) {
	names, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the data directory: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == lockFile || strings.HasPrefix(name, asidePrefix) })
	slices.SortFunc(names, func(a, b string) int {
		if x, y := strings.HasPrefix(a, markerPrefix), strings.HasPrefix(b, markerPrefix); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names, nil
}

// removeAsides removes all but the newest folders, and says how many. Their names sort by time.
func removeAsides(cfg Config, keep int) (int, error) {
	names, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		return 0, fmt.Errorf("list the data directory: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, asidePrefix) })
	slices.Sort(names)
	removed := 0
	for ; len(names) > keep; names = names[1:] {
		if err := cfg.FS.RemoveAll(cfg.FS.PathJoin(cfg.Dir, names[0])); err != nil {
			return removed, fmt.Errorf("remove damaged files that were set aside: %w", err)
		}
		removed++
	}
	return removed, nil
}
