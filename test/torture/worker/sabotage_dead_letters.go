//go:build sabotage_dead_letters

package worker

import (
	"context"
	"errors"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage drops records that it should put on the dead letter topic.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Handling(d, func(ctx context.Context, a *consumer.Assignment, rec *consumer.Record, next func(context.Context) error) error {
			err := next(ctx)
			if e, ok := errors.AsType[*schemas.Error](err); ok && e.Code == schemas.CodeUnknownAgent {
				return saboteur.Complete(a, rec)
			}
			return err
		})
	}
}

func exitCode(code int) int { return code }
