//go:build sabotage_call_order

package worker

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/test/torture/worker/saboteur"
)

// sabotage announces other calls than those that it makes.
func sabotage(o *app.RunOptions, _ *app.Program) {
	o.Consumer = func(d *consumer.Deps) {
		saboteur.Producing(d, func(r *kgo.Record) {
			if saboteur.Header(r, "ce_type") == "run.lathe.tool.start" {
				r.Value = bytes.Replace(r.Value, []byte(`/0/0","tool"`), []byte(`/0/9","tool"`), 1)
			}
		})
	}
}

func exitCode(code int) int { return code }
