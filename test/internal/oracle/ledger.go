package oracle

import (
	"strings"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/world"
)

// ledger: what ran is what the events say, and what may run once ran once.
func (j *judge) ledger() {
	begun, tools := world.Begun(j.Ledger), make(map[string]string)
	for _, e := range j.Ledger {
		tools[e.Key] = e.Tool
	}
	for key, n := range begun {
		if n > 1 && !world.MayRunAgain(tools[key]) {
			j.fault(AtMostOnce, "the call %s of %s, which may run at most once, ran %d times", key, tools[key], n)
		}
	}
	announced := make(map[string]bool)
	for _, o := range j.Outputs {
		if o.Tool == nil {
			continue
		}
		if o.Env.Type == schemas.TypeToolStart {
			announced[o.Tool.IdempotencyKey] = true
		} else {
			j.result(o, begun)
		}
	}
	for key := range begun {
		if !announced[key] && !j.forgiven(key, tools[key]) {
			j.fault(CallOrder, "the call %s ran without a tool:start", key)
		}
	}
}

func (j *judge) result(o Output, begun map[string]int) {
	key := o.Tool.IdempotencyKey
	switch o.Tool.Status {
	case schemas.StatusOK:
		if begun[key] == 0 {
			j.fault(Completed, "the call %s has a result and never ran", key)
		}
	case schemas.StatusIndeterminate:
		if world.MayRunAgain(o.Tool.Tool) {
			j.fault(Completed, "the call %s of %s is in doubt although it may run again", key, o.Tool.Tool)
		}
	case schemas.StatusSkipped:
		if begun[key] > 0 {
			j.fault(Completed, "the call %s was skipped and ran", key)
		}
	}
}

// forgiven: the start of a call that only reads may be lost with the worker that ran it; if its turn then ends for another
// reason, nobody asks for the call again. And while a turn has no end, its start may still come.
func (j *judge) forgiven(key, tool string) bool {
	id, _, _ := strings.Cut(key, "/")
	s := j.turns[id]
	if s == nil {
		return false
	}
	return s.ends == 0 || world.OnlyReads(tool) && s.status != schemas.StatusCompleted
}
