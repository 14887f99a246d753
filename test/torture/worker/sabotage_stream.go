//go:build sabotage_stream

package worker

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage gives each turn:step the id of no event.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Producing(d, func(r *kgo.Record) {
			if saboteur.Header(r, "ce_type") != "run.lathe.turn.step" {
				return
			}
			for i := range r.Headers {
				if r.Headers[i].Key == "ce_id" {
					r.Headers[i].Value = []byte("another")
				}
			}
		})
	}
}

func exitCode(code int) int { return code }
