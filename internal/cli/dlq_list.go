package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newDLQList(env Env) *cobra.Command {
	var f letterFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, one a line",
		Long: `Lists the dead letters that are there as the command begins, partition by partition, oldest first: its name, when it
was refused, the reason, session and turn where they are known, where the record stood in the turns topic, and the
detail. On a terminal a count by reason comes last. It changes nothing.`,
		Example: `  worker dlq list --since 24h --reason unknown_agent,key_mismatch
  worker dlq list --session customer-7
  worker dlq list --json | jq -r .reason | sort | uniq -c`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.resolve(time.Now()); err != nil {
				return err
			}
			d, err := openDLQ(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer d.close()
			return d.list(cmd.Context(), &f, asJSON)
		},
	}
	f.flags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

func (d *dlq) list(ctx context.Context, f *letterFilter, asJSON bool) error {
	spans, err := d.spans(ctx, f)
	if err != nil {
		return err
	}
	t := newLetterTable(d.env.Stdout, d.turns, asJSON)
	p := newProgress(d.env.Stderr, "read", "dead letters")
	err = d.scan(ctx, f.narrow(spans), func(rec *kgo.Record) error {
		p.step()
		l := d.read(ctx, rec)
		if !f.wants(l) {
			return nil
		}
		p.clear()
		t.row(l)
		if t.rows == f.limit {
			return errEnough
		}
		return nil
	})
	p.clear()
	t.end()
	return err
}

// letterTable prints dead letters, one a line.
type letterTable struct {
	w              io.Writer
	usual          string
	asJSON, person bool
	rows           int
	reasons        map[string]int
}

func newLetterTable(w io.Writer, usual string, asJSON bool) *letterTable {
	return &letterTable{w: w, usual: usual, asJSON: asJSON, person: !asJSON && isTerminal(w), reasons: make(map[string]int)}
}

const letterRow = "%-8s  %-20s  %-18s  %-18s  %-18s  %-9s  %s\n"

func (t *letterTable) row(l *letter) {
	if t.person && t.rows == 0 {
		say(t.w, "\x1b[2m"+strings.TrimSuffix(letterRow, "\n")+"\x1b[0m\n", "LETTER", "REFUSED", "REASON", "SESSION", "TURN", "FROM", "DETAIL")
	}
	t.rows++
	t.reasons[l.reason()]++
	if t.asJSON {
		printJSON(t.w, l.json())
		return
	}
	say(t.w, letterRow, l.name(), l.rec.Timestamp.UTC().Format(time.RFC3339), l.reason(), orDash(shorten(l.session(), 18)),
		orDash(shorten(l.turn(), 18)), orDash(printable(l.origin(t.usual))), describeLetter(l))
}

func describeLetter(l *letter) string {
	if !l.ours {
		return "not written by a worker"
	}
	return shorten(l.dead.Detail, 120)
}

// end prints a count by reason, for a person.
func (t *letterTable) end() {
	if !t.person {
		return
	}
	if t.rows == 0 {
		say(t.w, "no dead letter matches\n")
		return
	}
	say(t.w, "\n%s: %s\n", count(t.rows, "dead letter"), countsByName(t.reasons))
}

// countsByName lists counts, the largest first.
func countsByName(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	return strings.Join(names, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func printJSON(w io.Writer, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		say(w, "{\"error\":%q}\n", err.Error())
		return
	}
	say(w, "%s\n", b)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
