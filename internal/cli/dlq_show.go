package cli

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newDLQShow(env Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show <partition>/<offset>...",
		Short: "Show all of a dead letter, and what to do about it",
		Long:  "Shows all of a dead letter: why it was refused, where it stood, its headers, and its value: JSON indented, Avro as JSON, other\nbytes as a hex dump. Last comes what to do about it. The reasons are:\n\n" + reasonsHelp(),
		Example: `  worker dlq show 0/12
  worker dlq show 0/12 3/0 --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			places, err := parsePlaces(args)
			if err != nil {
				return err
			}
			d, err := openDLQ(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer d.close()
			return d.at(cmd.Context(), places, func(l *letter) error {
				if asJSON {
					printJSON(env.Stdout, l.fullJSON())
					return nil
				}
				d.show(env.Stdout, l)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object for each")
	return cmd
}

// reasonsHelp lists the reasons with their advice.
func reasonsHelp() string {
	var s strings.Builder
	for _, a := range reasonAdvice() {
		say(&s, "%s\n%s\n", a.reason, wrap(a.text, "    ", 110))
	}
	return s.String()
}

// show prints all of a letter for a person.
func (d *dlq) show(w io.Writer, l *letter) {
	field := func(name, format string, args ...any) {
		say(w, "  %-10s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	say(w, "dead letter %s of %s\n\n", l.name(), d.topic)
	field("reason", "%s", l.reason())
	if l.ours {
		field("detail", "%s", l.dead.Detail)
		field("refused", "%s", l.dead.At.UTC().Format(time.RFC3339Nano))
		field("from", "%s, partition %d, offset %d", l.dead.Topic, l.dead.Partition, l.dead.Offset)
	}
	if l.dead.ReplayedFrom != "" {
		field("replayed", "before, from the dead letter %s", l.dead.ReplayedFrom)
	}
	field("key", "%s", quoteBytes(l.rec.Key))
	if l.event != nil {
		field("turn", "%s, session %s, agent %s", l.event.TurnID, l.event.SessionID, orDash(l.event.Agent))
	}
	field("value", "%s", l.describeValue())
	for i, h := range l.ownHeaders() {
		name := ""
		if i == 0 {
			name = "headers"
		}
		field(name, "%s: %s", h.Key, quoteBytes(h.Value))
	}
	say(w, "\n")
	if len(l.rec.Value) > 0 {
		say(w, "%s\n\n", indent(printable(l.pretty())))
	}
	say(w, "What to do\n%s\n\n", wrap(advice(l), "  ", 110))
}

// ownHeaders are the headers that the record came with.
func (l *letter) ownHeaders() []headerView {
	headers := l.dead.Headers
	if !l.ours {
		headers = l.rec.Headers
	}
	out := make([]headerView, len(headers))
	for i, h := range headers {
		out[i] = headerView{h.Key, h.Value}
	}
	return out
}

type headerView struct {
	Key   string
	Value []byte
}

func (l *letter) describeValue() string {
	switch {
	case l.dead.Cut:
		return fmt.Sprintf("%d bytes, of which the first %d are here; SHA-256 of the whole: %s", l.dead.ValueBytes, len(l.rec.Value), l.dead.ValueSHA256)
	case l.rec.Value == nil:
		return "none"
	case l.encoding != "":
		return fmt.Sprintf("%d bytes, %s", len(l.rec.Value), l.encoding)
	}
	return fmt.Sprintf("%d bytes", len(l.rec.Value))
}

func (l *letter) fullJSON() *letterJSON {
	j := l.json()
	for _, h := range l.ownHeaders() {
		text, coded := textOrBase64(h.Value)
		j.Headers = append(j.Headers, headerJSON{Key: h.Key, Value: text, Base64: coded})
	}
	switch {
	case json.Valid(l.rec.Value):
		j.Event = l.rec.Value
	case l.event != nil:
		if b, err := json.Marshal(l.event); err == nil {
			j.Event = b
		}
	}
	if l.rec.Value != nil {
		j.Value = new(base64.StdEncoding.EncodeToString(l.rec.Value))
	}
	j.Advice = advice(l)
	return j
}

// quoteBytes writes text in quotes, and other bytes in hex.
func quoteBytes(b []byte) string {
	switch {
	case b == nil:
		return "none"
	case isText(b) || len(b) == 0:
		return fmt.Sprintf("%q", b)
	}
	return "0x" + hex.EncodeToString(b)
}

// maxDump is how much of a value is dumped; --json has all of it.
const maxDump = 4 << 10

func hexDump(b []byte) string {
	text := strings.TrimRight(hex.Dump(b[:min(len(b), maxDump)]), "\n")
	if len(b) > maxDump {
		text += fmt.Sprintf("\n... %d bytes more; --json has all of them in base64", len(b)-maxDump)
	}
	return text
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

// wrap breaks text into lines of a width, each behind a prefix.
func wrap(text, prefix string, width int) string {
	var out []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := prefix
		for word := range strings.FieldsSeq(paragraph) {
			if len(line)+len(word) > width && line != prefix {
				out = append(out, strings.TrimRight(line, " "))
				line = prefix
			}
			line += word + " "
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return strings.Join(out, "\n")
}
