package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/lathe-run/lathe/schemas"
)

// printer writes events: as JSON lines, or as a person reads them.
type printer struct {
	w      io.Writer
	asJSON bool
	colour bool
}

func newPrinter(w io.Writer, asJSON bool) *printer {
	return &printer{w: w, asJSON: asJSON, colour: !asJSON && isTerminal(w)}
}

func (p *printer) print(ev event) {
	if p.asJSON {
		p.printJSON(ev)
		return
	}
	kind := fmt.Sprintf("%-13s", ev.env.Type)
	if p.colour {
		kind = paint(ev, kind)
	}
	say(p.w, "%s  %-14s %s %s\n", ev.env.At.Format("15:04:05.000"), shorten(ev.env.TurnID, 14), kind, describe(ev))
}

func (p *printer) printJSON(ev event) {
	var v any
	switch {
	case ev.Tool != nil:
		v = ev.Tool
	case ev.Turn != nil:
		v = ev.Turn
	case ev.Status != nil:
		v = ev.Status
	default:
		v = ev.env
	}
	b, err := json.Marshal(v)
	if err != nil {
		say(p.w, "{\"event_id\":%q,\"error\":%q}\n", ev.env.EventID, err.Error())
		return
	}
	say(p.w, "%s\n", b)
}

// paint colours a type by what it means: green went well, red did not, cyan is about tools.
func paint(ev event, text string) string {
	code := "36"
	switch ev.env.Type {
	case schemas.TypeTurnEnd:
		code = "32"
		if ev.Turn.Status != schemas.StatusCompleted {
			code = "31"
		}
	case schemas.TypeTurnRejected:
		code = "31"
	case schemas.TypeToolResult:
		if ev.Tool.Status != schemas.StatusOK {
			code = "31"
		}
	case schemas.TypeTurnStart, schemas.TypeTurnStep:
		code = "2"
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func describe(ev event) string {
	switch {
	case ev.Tool != nil:
		return describeTool(ev.Tool)
	case ev.Turn != nil:
		return describeTurn(ev.Turn)
	case ev.Status != nil:
		return shorten(ev.Status.Text, 120)
	}
	return ""
}

func describeTool(t *schemas.ToolEvent) string {
	place := ""
	if t.Step != nil && t.Position != nil {
		place = fmt.Sprintf("%d/%d ", *t.Step, *t.Position)
	}
	if t.Type == schemas.TypeToolStart {
		return fmt.Sprintf("%s%s %s", place, t.Tool, shorten(string(t.Input), 80))
	}
	s := fmt.Sprintf("%s%s %s", place, t.Tool, t.Status)
	if t.Code != "" {
		s += " (" + string(t.Code) + ")"
	}
	if t.DurationMS != nil && t.Started != nil && *t.Started {
		s += fmt.Sprintf(" %d ms", *t.DurationMS)
	}
	if t.Message != "" {
		return s + ": " + shorten(t.Message, 100)
	}
	return s + " " + shorten(string(t.Output), 80)
}

func describeTurn(t *schemas.TurnOutput) string {
	switch t.Type {
	case schemas.TypeTurnStart:
		return fmt.Sprintf("%s with %s, %d tools, session %s", t.Agent, t.Model, len(t.Tools), t.SessionID)
	case schemas.TypeTurnStep:
		return describeStep(t)
	case schemas.TypeTurnRejected:
		return string(t.Code) + ": " + shorten(t.Message, 120)
	}
	s := t.Status
	if t.Code != "" {
		s += " (" + string(t.Code) + ")"
	}
	if t.Message != "" {
		s += ": " + shorten(t.Message, 100)
	}
	if len(t.Output) > 0 {
		s += " " + shorten(string(t.Output), 100)
	}
	return s
}

func describeStep(t *schemas.TurnOutput) string {
	var names []string
	for _, c := range t.Calls {
		names = append(names, c.Name)
	}
	if len(names) > 0 {
		return fmt.Sprintf("step %d asks for %s", *t.Step, strings.Join(names, ", "))
	}
	text := ""
	if t.Text != nil {
		text = shorten(*t.Text, 90)
	}
	return fmt.Sprintf("step %d %s: %s", *t.Step, t.FinishReason, text)
}

// shorten cuts s to n characters and keeps it on one line.
func shorten(s string, n int) string {
	s = printable(strings.Join(strings.Fields(s), " "))
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// printable takes out of text that came from outside what would not print but do something to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
