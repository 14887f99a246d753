//go:build sabotage_state

package worker

import (
	"context"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/statestore"
)

// sabotage writes to its local state what was never committed.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		store := d.Store
		d.Hooks.AfterSettle = func(context.Context) {
			for p := range int32(64) {
				if pos, found, err := store.Position(p); found && err == nil {
					_ = store.Restore(p, []statestore.Record{{Key: "tforged", Value: []byte{statestore.Format}}}, pos)
				}
			}
		}
	}
}

func exitCode(code int) int { return code }
