package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lathe-run/lathe/schemas"
)

// promise is one promise of the worker, and whether the demo saw it kept.
type promise struct {
	text string
	held bool
	seen string
}

// evidence is all that the demo knows in the end: the committed events in the order they were read, the shop's ledger, the
// dead letters by reason, and what binding a gated tool said.
type evidence struct {
	events  []event
	ledger  ledger
	dead    map[string]int
	refusal error
	killed  bool
}

// promises checks the evidence.
func (e evidence) promises() []promise {
	return []promise{
		e.eachEventOnce(), e.noGap(), e.oneEnd(), e.startsBeforeResults(), e.atMostOnce(), e.killedRefund(), e.recordedOnce(),
		e.sessionOrder(), e.endings(), e.deadLetters(), e.gated(),
	}
}

func (e evidence) eachEventOnce() promise {
	seen := make(map[string]int)
	for _, ev := range e.events {
		seen[ev.env.EventID]++
	}
	twice := keysAbove(seen, 1)
	return promise{"every output event exactly once", len(twice) == 0 && len(seen) > 0, fmt.Sprintf("%d events, %d ids%s", len(e.events), len(seen), list(" twice: ", twice))}
}

// bySeq groups the events of turns, each in the order of seq.
func (e evidence) bySeq() map[string][]event {
	turns := make(map[string][]event)
	for _, ev := range e.events {
		if ev.env.Seq != nil {
			turns[ev.env.TurnID] = append(turns[ev.env.TurnID], ev)
		}
	}
	for _, t := range turns {
		slices.SortStableFunc(t, func(a, b event) int { return int(*a.env.Seq - *b.env.Seq) })
	}
	return turns
}

func (e evidence) noGap() promise {
	var bad []string
	turns := e.bySeq()
	for id, events := range turns {
		for i, ev := range events {
			if *ev.env.Seq != int64(i) {
				bad = append(bad, id)
				break
			}
		}
	}
	return promise{"seq of each turn's events without a gap", len(bad) == 0, fmt.Sprintf("%d turns%s", len(turns), list(" with a gap: ", bad))}
}

func (e evidence) oneEnd() promise {
	ends := make(map[string]int)
	for _, t := range demoTurns() {
		if t.status != "" {
			ends[t.event.TurnID] = 0
		}
	}
	for _, ev := range e.events {
		if ev.env.Type == schemas.TypeTurnEnd {
			ends[ev.env.TurnID]++
		}
	}
	var bad []string
	for id, n := range ends {
		if n != 1 {
			bad = append(bad, fmt.Sprintf("%s: %d", id, n))
		}
	}
	slices.Sort(bad)
	return promise{"no turn lost: each has exactly one turn:end", len(bad) == 0, fmt.Sprintf("%d turns%s", len(ends), list(" wrong: ", bad))}
}

func (e evidence) startsBeforeResults() promise {
	started, open, results := make(map[string]bool), make(map[string]bool), 0
	var bad []string
	for _, events := range e.bySeq() {
		for _, ev := range events {
			switch {
			case ev.env.Type == schemas.TypeToolStart:
				started[ev.Tool.IdempotencyKey], open[ev.Tool.IdempotencyKey] = true, true
			case ev.env.Type == schemas.TypeToolResult:
				results++
				delete(open, ev.Tool.IdempotencyKey)
				if *ev.Tool.Started != started[ev.Tool.IdempotencyKey] {
					bad = append(bad, ev.Tool.IdempotencyKey)
				}
			case ev.env.Type == schemas.TypeTurnEnd && len(open) > 0:
				bad = append(bad, ev.env.TurnID)
			}
		}
	}
	return promise{"a tool:start before its tool:result, none left open", len(bad) == 0, fmt.Sprintf("%d starts, %d results%s", len(started), results, list(" wrong: ", bad))}
}

func (e evidence) atMostOnce() promise {
	changing := make(map[string]int)
	for _, ev := range e.events {
		if ev.env.Type == schemas.TypeToolStart && ev.Tool.Effect == schemas.EffectWrite {
			changing[ev.Tool.IdempotencyKey] = e.ledger.began[ev.Tool.IdempotencyKey]
		}
	}
	twice := keysAbove(changing, 1)
	return promise{
		"no at_most_once tool ran twice", len(twice) == 0 && e.ledger.refunds == 2 && e.ledger.mails == 1,
		fmt.Sprintf("%d refunds and %d mail in the shop's books%s", e.ledger.refunds, e.ledger.mails, list(", ran twice: ", twice)),
	}
}

func (e evidence) killedRefund() promise {
	const key = killedTurn + "/1/0"
	status := "no result"
	for _, ev := range e.events {
		if ev.env.Type == schemas.TypeToolResult && ev.Tool.IdempotencyKey == key {
			status = ev.Tool.Status
		}
	}
	n := e.ledger.began[key]
	return promise{
		"a call in doubt is said to be so, never run again", e.killed && n == 1 && status == schemas.StatusIndeterminate,
		fmt.Sprintf("worker killed during the refund; it began %s; its result: %s", times(n), status),
	}
}

func (e evidence) recordedOnce() promise {
	ok := make(map[string]int)
	for _, ev := range e.events {
		if ev.env.Type == schemas.TypeToolResult && ev.Tool.Status == schemas.StatusOK {
			ok[ev.Tool.IdempotencyKey] = e.ledger.began[ev.Tool.IdempotencyKey]
		}
	}
	twice := keysAbove(ok, 1)
	return promise{"a recorded result is never computed twice", len(twice) == 0 && len(ok) > 0, fmt.Sprintf("%d recorded results%s", len(ok), list(" twice: ", twice))}
}

func (e evidence) sessionOrder() promise {
	place := make(map[string]int)
	for i, ev := range e.events {
		place[ev.env.EventID] = i
	}
	end, first := place["demo-session-1/turn:end"], place["demo-session-2/turn:start"]
	return promise{"turns of a session one at a time, in order", first > end, "the second began after the first had ended"}
}

func (e evidence) endings() promise {
	got := make(map[string]string)
	for _, ev := range e.events {
		if ev.env.Type == schemas.TypeTurnEnd {
			got[ev.env.TurnID] = ev.Turn.Status
		}
	}
	var bad []string
	for _, t := range demoTurns() {
		if t.status != "" && got[t.event.TurnID] != t.status {
			bad = append(bad, fmt.Sprintf("%s %s, not %s", t.event.TurnID, got[t.event.TurnID], t.status))
		}
	}
	return promise{"failures of tools stay inside their turn", len(bad) == 0, fmt.Sprintf("%d turns ended as they should%s", len(got)-len(bad), list("; not: ", bad))}
}

func (e evidence) deadLetters() promise {
	held := e.dead[string(schemas.CodeUndecodable)] == 1 && e.dead[string(schemas.CodeConflict)] == 1 && len(e.dead) == 2
	return promise{"bad records become dead letters and block nothing", held, fmt.Sprintf("dead letters by reason: %v", e.dead)}
}

func (e evidence) gated() promise {
	if e.refusal == nil {
		return promise{"a tool that waits for approval is refused", false, "it was bound"}
	}
	lines := strings.Split(strings.TrimSpace(e.refusal.Error()), "\n")
	return promise{"a tool that waits for approval is refused", strings.Contains(e.refusal.Error(), "wire_transfer"), shorten(lines[len(lines)-1], 90)}
}

// printPromises writes the table, and returns whether all held.
func printPromises(w io.Writer, ps []promise) bool {
	all := true
	say(w, "\n%-52s %-6s %s\n%s\n", "promise", "held", "seen", strings.Repeat("-", 120))
	for _, p := range ps {
		held := "yes"
		if !p.held {
			held, all = "NO", false
		}
		say(w, "%-52s %-6s %s\n", p.text, held, p.seen)
	}
	return all
}

func keysAbove(counts map[string]int, most int) []string {
	var out []string
	for k, n := range counts {
		if n > most {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func list(before string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return before + strings.Join(items, ", ")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
