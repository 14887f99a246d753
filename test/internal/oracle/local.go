package oracle

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/lathe-run/lathe/internal/statestore"
)

// ReadLocal reads the state that a worker which has ended left in its data directory. A directory that is not there, or that a
// process still has open, gives none.
func ReadLocal(worker, dir string, partitions int32) (out []Local, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	// A worker of the next release may have left it.
	store, err := statestore.Open(statestore.Config{Dir: dir, Formats: statestore.Formats{Newest: statestore.Format + 1}})
	if errors.Is(err, statestore.ErrLocked) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the local state of %s: %w", worker, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for p := range partitions {
		pos, found, err := store.Position(p)
		if err != nil {
			return nil, fmt.Errorf("read the local state of %s: %w", worker, err)
		}
		if !found {
			continue
		}
		l := Local{Worker: worker, Partition: p, Next: pos.ChangelogNext, Values: make(map[string][]byte)}
		err = store.Scan(p, "", func(key string, value []byte) error {
			l.Values[key] = bytes.Clone(value)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the local state of %s: %w", worker, err)
		}
		out = append(out, l)
	}
	return out, nil
}
