//go:build !next_release

package worker

import "github.com/lathe-run/lathe/internal/statestore"

// release leaves the worker one of this release.
func release(*statestore.Config) {}
