package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lathe-run/lathe/internal/fact"
)

// view is what a template sees of a request.
type view struct {
	req    *fact.Request
	groups []string
	text   *string
}

// user is the text of the last user message.
func (v *view) user() string {
	if v.text == nil {
		var text string
		messages := v.req.Messages
		for i := range slices.Backward(messages) {
			if messages[i].Role == fact.RoleUser {
				text = plainText(&messages[i])
				break
			}
		}
		v.text = &text
	}
	return *v.text
}

// result is the n-th tool result since the last answer.
func (v *view) result(n int) (string, error) {
	first := len(v.req.Messages)
	for first > 0 && v.req.Messages[first-1].Role == fact.RoleTool {
		first--
	}
	if first+n >= len(v.req.Messages) {
		return "", fmt.Errorf("there is no result.%d", n)
	}
	return v.req.Messages[first+n].Text, nil
}

// template is a text with places to fill. One without places costs nothing to render.
type template struct {
	literal string
	parts   []part
}

type part struct {
	literal string
	// value is nil for a literal.
	value func(*view) (string, error)
	// quoted values stand inside a JSON string.
	quoted bool
}

func compileTemplate(s string, user *regexp.Regexp, quoted bool) (template, error) {
	t := template{literal: s}
	rest := s
	for {
		before, after, found := strings.Cut(rest, "{{")
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}}")
		if !closed {
			return t, errors.New("a {{ has no }}")
		}
		value, err := place(strings.TrimSpace(name), user)
		if err != nil {
			return t, err
		}
		t.parts = append(t.parts, part{literal: before}, part{value: value, quoted: quoted})
		rest = tail
	}
	if t.parts != nil {
		t.parts = append(t.parts, part{literal: rest})
	}
	return t, nil
}

func place(name string, user *regexp.Regexp) (func(*view) (string, error), error) {
	switch name {
	case "turn_id":
		return func(v *view) (string, error) { return v.req.TurnID, nil }, nil
	case "session_id":
		return func(v *view) (string, error) { return v.req.Session, nil }, nil
	case "agent":
		return func(v *view) (string, error) { return v.req.Agent, nil }, nil
	case "step":
		return func(v *view) (string, error) { return strconv.Itoa(v.req.Step), nil }, nil
	case "user":
		return func(v *view) (string, error) { return v.user(), nil }, nil
	}
	if index, ok := strings.CutPrefix(name, "result."); ok {
		n, err := strconv.Atoi(index)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("{{%s}}: want a number from 0", name)
		}
		return func(v *view) (string, error) { return v.result(n) }, nil
	}
	if n := groupIndex(name, user); n >= 0 {
		return func(v *view) (string, error) { return v.groups[n], nil }, nil
	}
	return nil, fmt.Errorf("{{%s}} is neither a field nor a group of match.user", name)
}

func groupIndex(name string, user *regexp.Regexp) int {
	if user == nil {
		return -1
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n <= user.NumSubexp() {
		return n
	}
	return user.SubexpIndex(name)
}

func (t *template) render(v *view) (string, error) {
	if t.parts == nil {
		return t.literal, nil
	}
	var b strings.Builder
	if err := t.renderTo(&b, v); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (t *template) renderTo(b *strings.Builder, v *view) error {
	if t.parts == nil {
		b.WriteString(t.literal)
		return nil
	}
	b.Grow(len(t.literal))
	for _, p := range t.parts {
		if p.value == nil {
			b.WriteString(p.literal)
			continue
		}
		s, err := p.value(v)
		if err != nil {
			return err
		}
		if p.quoted {
			if s, err = insideString(s); err != nil {
				return err
			}
		}
		b.WriteString(s)
	}
	return nil
}

// insideString is s as it stands between the quotes of a JSON string.
func insideString(s string) (string, error) {
	q, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode a value: %w", err)
	}
	return string(q[1 : len(q)-1]), nil
}
