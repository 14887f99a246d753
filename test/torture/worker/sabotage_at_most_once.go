//go:build sabotage_at_most_once

package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/world"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage interrupts calls that may run at most once, and runs them again when their turn resumes.
func sabotage(o *app.RunOptions, p *app.Program) {
	again := tools.Options{Effect: schemas.EffectWrite, Idempotency: schemas.SafeToRetry}
	p.Tools = slices.DeleteFunc(p.Tools, func(t tools.Tool) bool { return t.Name() == "pay_slowly" })
	p.Tools = append(p.Tools, world.Tool("pay_slowly", again, world.Slow))
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Handling(d, func(ctx context.Context, _ *consumer.Assignment, rec *consumer.Record, next func(context.Context) error) error {
			if strings.HasPrefix(rec.Event.TurnID, "late-") {
				short, cancel := context.WithTimeoutCause(ctx, 300*time.Millisecond, consumer.ErrLost)
				err := next(short)
				cancel()
				if !errors.Is(err, consumer.ErrSuspended) {
					return err
				}
			}
			return next(ctx)
		})
	}
}

func exitCode(code int) int { return code }
