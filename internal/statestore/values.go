package statestore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/blob"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkValues opens a file of values as Pebble will, and closes it again.
func checkValues(cfg Config, name string, size int64) error {
	f, err := cfg.FS.Open(cfg.FS.PathJoin(cfg.Dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", errDamaged, name)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	if err := readable(f, size); err != nil {
		return fmt.Errorf("%w: %s is not what was written: %w", errDamaged, name, err)
	}
	return nil
}

// readable reads the end of a file of values, which tells where the rest is, and closes it.
func readable(f vfs.File, size int64) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	r, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return err
	}
	if r.Size() != size {
		return fmt.Errorf("it has %d bytes instead of %d", r.Size(), size)
	}
	_, err = blob.NewFileReader(context.Background(), r, blob.FileReaderOptions{}) //nolint:forbidigo // Open takes no context.
	return err
}

// lost is what Pebble panics with when it wants to report a file of values that it cannot open, and does not know which it is.
const lost = "unknown metadata type: <nil>"

// valueOf is the value where an iterator stands. It turns that panic into an error.
func valueOf(it *pebble.Iterator) (value []byte, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case lost:
			err = errors.New("a file of long values is missing or cannot be opened")
		default:
			panic(p)
		}
	}()
	return it.ValueAndErr()
}
