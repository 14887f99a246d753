//go:build sabotage_session_order

package worker

import (
	"context"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage runs the turns of a session side by side.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Handling(d, func(ctx context.Context, _ *consumer.Assignment, rec *consumer.Record, next func(context.Context) error) error {
			if rec.Event.Agent != "" { // What is refused has to be said at once.
				return next(ctx)
			}
			go func() { _ = next(ctx) }()
			return nil
		})
	}
}

func exitCode(code int) int { return code }
