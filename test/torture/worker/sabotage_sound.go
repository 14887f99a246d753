//go:build sabotage_sound

package worker

import (
	"context"
	"os"
	"path/filepath"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage ends by itself, once.
func sabotage(o *app.RunOptions, _ *app.Program) {
	once := filepath.Join(os.Getenv(EnvDir), "ended")
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Handling(d, func(ctx context.Context, _ *consumer.Assignment, _ *consumer.Record, next func(context.Context) error) error {
			if f, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				_ = f.Close()
				os.Exit(1)
			}
			return next(ctx)
		})
	}
}

func exitCode(code int) int { return code }
