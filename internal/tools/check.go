package tools

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lathe-run/lathe/schemas"
)

// check returns what is wrong with a definition wherever it is bound. Gates are not here: a gated tool may exist, it only may not
// be bound.
func check(name string, o Options, defined schemas.Effect, limits Config) []problem {
	var c checker
	c.name(name)
	c.when(len(o.Version) > maxVersion, fmt.Sprintf("its version has more than %d characters", maxVersion), "shorten it")
	c.when(strings.TrimSpace(o.Description) == "", "it has no description", "describe it for the model")
	n := utf8.RuneCountInString(o.Description)
	c.when(n > maxDescription, fmt.Sprintf("its description has %d characters, the limit is %d", n, maxDescription), "shorten it")
	c.effect(o, defined)
	c.retry(o)
	c.when(o.Timeout < 0, fmt.Sprintf("its timeout is %s", o.Timeout), "set one above 0")
	c.when(o.MaxResultBytes < 0, fmt.Sprintf("its max_result_bytes is %d", o.MaxResultBytes), "set one above 0")
	c.when(o.MaxResultBytes > limits.MaxRecordBytes,
		fmt.Sprintf("its max_result_bytes of %d is above the %d that a record can hold", o.MaxResultBytes, limits.MaxRecordBytes),
		"lower it, or raise the limit of the topic")
	return c.faults
}

type checker struct{ faults []problem }

func (c *checker) when(wrong bool, text, fix string) {
	if wrong {
		c.faults = append(c.faults, problem{text, fix})
	}
}

func (c *checker) name(name string) {
	c.when(!validName(name), "its name is not valid",
		"use a letter, then up to 127 letters, digits and any of . _ / -")
	c.when(validName(name) && len(name) > maxModelName,
		fmt.Sprintf("its name has %d characters, a model takes at most %d", len(name), maxModelName), "shorten it")
}

func (c *checker) effect(o Options, defined schemas.Effect) {
	switch o.Effect {
	case schemas.EffectNone, schemas.EffectRead:
		says := ""
		switch {
		case defined == schemas.EffectWrite || defined == schemas.EffectHost:
			says = "is defined as " + string(defined)
		case o.Hints.ReadOnly != nil && !*o.Hints.ReadOnly:
			says = "has the hint that it is not read-only"
		case o.Hints.Destructive != nil && *o.Hints.Destructive:
			says = "has the hint that it is destructive"
		}
		c.when(says != "", fmt.Sprintf("its effect is %s, but it %s", o.Effect, says), "make its effect write")
	case schemas.EffectWrite, schemas.EffectHost:
	case "":
		c.when(true, "it has no effect", "say none, read, write or host")
	default:
		c.when(true, fmt.Sprintf("its effect is %q", cut(string(o.Effect), maxModelName)), "say none, read, write or host")
	}
	switch o.Idempotency {
	case "", schemas.SafeToRetry, schemas.AtMostOnce:
	default:
		c.when(true, fmt.Sprintf("its idempotency is %q", cut(string(o.Idempotency), maxModelName)), "say safe_to_retry or at_most_once")
	}
}

func (c *checker) retry(o Options) {
	r := o.Retry
	c.when(r.Retries > 0 && idempotency(o) == schemas.AtMostOnce,
		"it is retried although it may run at most once", "remove retry, or make its idempotency safe_to_retry")
	c.when(r.Retries < 0 || r.Initial < 0 || r.Max < 0 || r.Multiplier < 0 || r.Multiplier > 0 && r.Multiplier < 1 || r.Jitter < 0 || r.Jitter > 1,
		"its retry policy is not valid", "use no negative numbers, a multiplier of at least 1 and a jitter of at most 1")
}

// idempotency is what the options say or imply.
func idempotency(o Options) schemas.Idempotency {
	switch {
	case o.Idempotency != "":
		return o.Idempotency
	case o.Effect == schemas.EffectNone || o.Effect == schemas.EffectRead:
		return schemas.SafeToRetry
	}
	return schemas.AtMostOnce
}

// gate says how a tool asks for approval, empty if it does not.
func gate(o Options, s Settings) string {
	for _, form := range [...]struct {
		value any
		where string
	}{{o.RequiresApproval, "its definition"}, {s.RequiresApproval, "the manifest"}} {
		switch v := form.value.(type) {
		case nil:
		case bool:
			if v {
				return "requires_approval is set in " + form.where
			}
		default:
			return "requires_approval has a condition in " + form.where
		}
	}
	if o.ApprovalTimeout != 0 {
		return "approval_timeout is set in its definition"
	}
	if s.ApprovalTimeout != nil {
		return "approval_timeout is set in the manifest"
	}
	return ""
}

func validName(name string) bool {
	if name == "" || len(name) > maxName || !letter(name[0]) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !letter(c) && (c < '0' || c > '9') && !strings.ContainsRune("._/-", rune(c)) {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// modelName is a name as models take it.
func modelName(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, ".", "_"), "/", "_")
}
