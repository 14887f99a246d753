//go:build sabotage_offset_prefix

package worker

import (
	"context"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage commits offsets of turns that it has only begun.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Handling(d, func(ctx context.Context, a *consumer.Assignment, rec *consumer.Record, next func(context.Context) error) error {
			if err := saboteur.Complete(a, rec); err != nil {
				return err
			}
			return next(ctx)
		})
	}
}

func exitCode(code int) int { return code }
