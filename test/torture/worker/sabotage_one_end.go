//go:build sabotage_one_end

package worker

import (
	"context"
	"strings"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage loses turns: their offset is done, and nothing else happens.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Handling(d, func(ctx context.Context, a *consumer.Assignment, rec *consumer.Record, next func(context.Context) error) error {
			if strings.HasPrefix(rec.Event.TurnID, "hello-") {
				return saboteur.Complete(a, rec)
			}
			return next(ctx)
		})
	}
}

func exitCode(code int) int { return code }
