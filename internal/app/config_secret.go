package app

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[REDACTED]"

// Secret is a text that must not be printed: whatever formats, marshals or logs it gets a placeholder. An empty secret
// shows as empty, so that "not set" can be seen.
type Secret string

// Reveal returns the text itself. Call it where the secret is used, and nowhere else.
func (s Secret) Reveal() string { return string(s) }

// String returns the placeholder.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString returns the placeholder, for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format writes the placeholder for every verb: %d or %x of a string would show it.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'v' && f.Flag('#') || verb == 'q' {
		text = s.GoString()
	}
	_, _ = io.WriteString(f, text)
}

// MarshalText returns the placeholder, for JSON, YAML and whatever else encodes text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns the placeholder as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// LogValue returns the placeholder, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
