//go:build sabotage_in_time

package worker

import (
	"context"
	"strings"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage never comes to the end of some turns.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Handling(d, func(ctx context.Context, _ *consumer.Assignment, rec *consumer.Record, next func(context.Context) error) error {
			if strings.HasPrefix(rec.Event.TurnID, "hello-") {
				<-ctx.Done()
			}
			return next(ctx)
		})
	}
}

func exitCode(code int) int { return code }
