//go:build !sabotage_at_most_once && !sabotage_call_order && !sabotage_clean_stop && !sabotage_completed && !sabotage_dead_letters && !sabotage_event_once && !sabotage_in_time && !sabotage_offset_prefix && !sabotage_one_end && !sabotage_session_order && !sabotage_sound && !sabotage_state && !sabotage_stream

package worker

import "github.com/lathe-run/lathe/internal/app"

// sabotage does nothing to a sound worker.
func sabotage(*app.RunOptions, *app.Program) {}

func exitCode(code int) int { return code }
