//go:build unix

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile locks a file until unlock is called or the process ends, however it does. The file stays.
func lockFile(path string) (unlock func(context.Context) error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600) //nolint:gosec // The name is ours, in the system's folder.
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errHeld
		}
		return nil, errors.Join(err, f.Close())
	}
	return func(context.Context) error { return f.Close() }, nil
}
