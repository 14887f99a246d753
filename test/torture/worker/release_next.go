//go:build next_release

package worker

import "github.com/lathe-run/lathe/internal/statestore"

// release makes the worker one of the next release: it knows a format of stored values that this one does not, and writes the one
// that both know until LATHE_STATE_FORMAT says otherwise.
func release(cfg *statestore.Config) { cfg.Formats.Newest = statestore.Format + 1 }
