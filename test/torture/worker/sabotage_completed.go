//go:build sabotage_completed

package worker

import (
	"slices"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

// sabotage answers calls without making them.
func sabotage(_ *app.RunOptions, p *app.Program) {
	type in struct {
		N int `json:"n"`
	}
	p.Tools = slices.DeleteFunc(p.Tools, func(t tools.Tool) bool { return t.Name() == "save" })
	p.Tools = append(p.Tools, tools.Define("save", func(*tools.Context, in) (string, error) { return "saved", nil }, tools.Options{
		Description: "Saves nothing.", Effect: schemas.EffectWrite, Idempotency: schemas.SafeToRetry,
	}))
}

func exitCode(code int) int { return code }
