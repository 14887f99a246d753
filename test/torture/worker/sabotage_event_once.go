//go:build sabotage_event_once

package worker

import (
	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage emits each turn:rejected twice.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Rejecting(d, func(out []statestore.Output) []statestore.Output { return append(out, out...) })
	}
}

func exitCode(code int) int { return code }
