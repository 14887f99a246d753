package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errHeld says that another process has the lock.
var errHeld = errors.New("another process has it")

// lockIdentity keeps a second worker from taking the identity of one that runs on this host: without an instance id that is the
// host's name, and both would fence each other until they ended. Where no lock can be taken (no folder for it, another user's) the
// guard against that is all there is, as it is between hosts of one name.
func (w *worker) lockIdentity() error {
	if w.settings.InstanceID != "" {
		return nil
	}
	unlock, err := lockFile(filepath.Join(os.TempDir(), identityFile(w.settings.Brokers, w.settings.App, w.instance)))
	if errors.Is(err, errHeld) {
		return fmt.Errorf("another worker of LATHE_APP=%s runs on this host, and without LATHE_INSTANCE_ID the host name, %s, is the identity of both: give each an id of its own",
			w.settings.App, w.instance)
	}
	if err == nil {
		w.onClose(unlock)
	}
	return nil
}

// identityFile names what may be only once: the transactional ids on a cluster.
func identityFile(brokers []string, app, instance string) string {
	brokers = slices.Sorted(slices.Values(brokers))
	sum := sha256.Sum256([]byte(strings.Join(append(brokers, app, instance), "\n")))
	return "lathe-" + hex.EncodeToString(sum[:8]) + ".lock"
}
