package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// replayJSON is one line of a replay for programs.
type replayJSON struct {
	Letter  string    `json:"letter"`
	Outcome outcome   `json:"outcome"`
	Why     string    `json:"why,omitempty"`
	Reason  string    `json:"reason"`
	TurnID  string    `json:"turn_id,omitempty"`
	To      *fromJSON `json:"to,omitempty"`
}

// report prints what became of a dead letter, and counts it. It is called by the command, and by the producer's promises.
func (r *replay) report(l *letter, o outcome, rec *kgo.Record, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[o]++
	r.p.clear()
	if r.flags.asJSON {
		j := replayJSON{Letter: l.name(), Outcome: o, Why: why, Reason: l.reason(), TurnID: l.turn()}
		if rec != nil {
			j.To = &fromJSON{rec.Topic, rec.Partition, rec.Offset}
			if o == outcomePlanned {
				j.To.Offset = -1
			}
		}
		printJSON(r.env.Stdout, j)
		return
	}
	place := why
	switch {
	case rec != nil && o == outcomePlanned:
		place = fmt.Sprintf("to %s, partition %d", rec.Topic, rec.Partition)
	case rec != nil:
		place = fmt.Sprintf("to %s, partition %d, offset %d", rec.Topic, rec.Partition, rec.Offset)
	}
	say(r.env.Stdout, "%-8s  %-18s  %-18s  %-13s  %s\n", l.name(), l.reason(), orDash(shorten(l.turn(), 18)), o, printable(place))
}

// summary says how it went, and returns an error when something that was chosen was not sent.
func (r *replay) summary(places []span) error {
	r.p.clear()
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, o := range []outcome{outcomeSent, outcomePlanned, outcomeRefused, outcomePassed, outcomeFailed} {
		if n := r.counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	if len(parts) == 0 {
		parts = []string{"no dead letter matches"}
	}
	if !r.flags.asJSON {
		say(r.env.Stdout, "\n%s\n", strings.Join(parts, ", "))
		if !r.send && r.counts[outcomePlanned] > 0 {
			say(r.env.Stdout, "Nothing was sent yet: %s\n", r.next(places))
		}
	}
	if missed := r.counts[outcomeRefused] + r.counts[outcomeFailed]; r.send && missed > 0 {
		return errors.New(count(missed, "dead letter") + " that you chose could not be sent, see above")
	}
	return nil
}

// next is what to type to send what was planned.
func (r *replay) next(places []span) string {
	if len(places) > 0 {
		return "leave --dry-run out to send them."
	}
	return "the same command with --yes sends them."
}
