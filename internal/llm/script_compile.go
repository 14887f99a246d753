package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// scenario is a Scenario ready to play.
type scenario struct {
	name    string
	match   Match
	user    *regexp.Regexp
	repeat  bool
	answers []answer
}

// answer is a Reply ready to render.
type answer struct {
	text      template
	pad       int
	calls     []callTemplate
	finish    string
	usage     schemas.Usage
	delay     time.Duration
	fail      error
	failTimes int
}

type callTemplate struct {
	name, id  string
	arguments template
}

func compileScenario(s *Scenario, n int) (*scenario, error) {
	sc := &scenario{name: s.Name, match: s.Match, repeat: s.Repeat}
	if sc.name == "" {
		sc.name = strconv.Itoa(n)
	}
	var faults []error
	if s.Match.User != "" {
		re, err := regexp.Compile(s.Match.User)
		if err != nil {
			return nil, fmt.Errorf("scenario %s: match.user: %w", sc.name, err)
		}
		sc.user = re
	}
	if len(s.Steps) == 0 {
		faults = append(faults, fmt.Errorf("scenario %s: has no steps", sc.name))
	}
	for i := range s.Steps {
		a, err := compileReply(&s.Steps[i], i, sc.user)
		if err != nil {
			faults = append(faults, fmt.Errorf("scenario %s: step %d: %w", sc.name, i, err))
		}
		sc.answers = append(sc.answers, a)
	}
	return sc, errors.Join(faults...)
}

func compileReply(r *Reply, step int, user *regexp.Regexp) (answer, error) {
	a := answer{pad: r.Pad, finish: r.FinishReason, delay: r.Delay, usage: schemas.Usage(r.Usage)}
	if a.finish == "" {
		a.finish = finishOf(len(r.Calls))
	}
	var faults []error
	note := func(field string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", field, err))
		}
	}
	if !slices.Contains([]string{
		schemas.FinishStop, schemas.FinishToolCall, schemas.FinishLength, schemas.FinishContentFilter, schemas.FinishError,
	}, a.finish) {
		note("finish_reason", fmt.Errorf("%q is not one of turn:step", a.finish))
	}
	var err error
	a.text, err = compileTemplate(r.Text, user, false)
	note("text", err)
	for i := range r.Calls {
		c, err := compileCall(&r.Calls[i], step, i, user)
		note("calls."+strconv.Itoa(i), err)
		a.calls = append(a.calls, c)
	}
	if e := r.Error; e != nil {
		note("error", e.validate())
		a.fail, a.failTimes = scriptedFailure(e), e.Times
	}
	return a, errors.Join(faults...)
}

func (e *ScriptedError) validate() error {
	switch {
	case e.Status == 0 && e.Code == "":
		return errors.New("needs a status or a code")
	case e.Status != 0 && (e.Status < 300 || e.Status > 599):
		return fmt.Errorf("the status %d is not one of an error", e.Status)
	case e.Times < 0:
		return errors.New("times must not be negative")
	}
	return nil
}

func compileCall(c *ScriptedCall, step, position int, user *regexp.Regexp) (callTemplate, error) {
	out := callTemplate{name: c.Name, id: c.ID}
	if out.name == "" {
		return out, errors.New("name is missing")
	}
	if out.id == "" {
		out.id = "call_" + strconv.Itoa(step) + "_" + strconv.Itoa(position)
	}
	var err error
	switch v := c.Arguments.(type) {
	case nil:
		out.arguments, err = compileTemplate("{}", user, false)
	case string:
		out.arguments, err = compileTemplate(v, user, false)
	default:
		var raw json.RawMessage
		if raw, err = marshal(v); err == nil {
			out.arguments, err = compileTemplate(string(raw), user, true)
		}
	}
	if err != nil {
		return out, fmt.Errorf("arguments: %w", err)
	}
	return out, nil
}

func (sc *scenario) matches(v *view) bool {
	m := &sc.match
	if m.Agent != "" && m.Agent != v.req.Agent ||
		!strings.HasPrefix(v.req.TurnID, m.Turn) || !strings.HasPrefix(v.req.Session, m.Session) {
		return false
	}
	if sc.user == nil {
		return true
	}
	v.groups = sc.user.FindStringSubmatch(v.user())
	return v.groups != nil
}

// say is the answer's text, as long as the script wants it.
func (a *answer) say(v *view) (string, error) {
	if a.pad == 0 {
		return a.text.render(v)
	}
	var b strings.Builder
	b.Grow(a.pad)
	if err := a.text.renderTo(&b, v); err != nil {
		return "", err
	}
	if missing := a.pad - b.Len(); missing > 0 {
		b.WriteString(Filler(v.req.TurnID+"#"+strconv.Itoa(v.req.Step), missing))
	}
	return b.String(), nil
}

func (a *answer) render(v *view) (*fact.Response, error) {
	text, err := a.say(v)
	if err != nil {
		return nil, err
	}
	resp := &fact.Response{Text: text, FinishReason: a.finish, Usage: a.usage}
	if len(a.calls) == 0 {
		return resp, nil
	}
	resp.Calls = make([]fact.Asked, len(a.calls))
	for i := range a.calls {
		c := &a.calls[i]
		arguments, err := c.arguments.render(v)
		if err != nil {
			return nil, err
		}
		resp.Calls[i] = fact.Asked{Name: c.name, CallID: c.id, Arguments: []byte(arguments)}
	}
	return resp, nil
}
