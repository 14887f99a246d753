//go:build sabotage_clean_stop

package worker

import (
	"github.com/lathe-run/lathe/internal/app"
)

// sabotage ends with a failure after a clean drain.
func sabotage(*app.RunOptions, *app.Program) {}

func exitCode(int) int { return 3 }
