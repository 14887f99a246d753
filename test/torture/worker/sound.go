//go:build !sabotage

package worker

import "github.com/lathe-run/lathe/internal/app"

// sabotage does nothing to a sound worker.
func sabotage(*app.RunOptions, *app.Program) {}

func exitCode(code int) int { return code }
