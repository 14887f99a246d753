package schemas

import (
	"encoding/json"
	"time"
)

// TurnEvent is a record of the turns topic: a request for a turn, or the cancelling of one. The fields are documented in
// turn_event.avsc.
type TurnEvent struct {
	Type      string    `json:"type,omitempty"`
	TurnID    string    `json:"turn_id"`
	SessionID string    `json:"session_id,omitempty"`
	Agent     string    `json:"agent,omitempty"`
	Messages  []Message `json:"messages,omitempty"`
	// Calls is a planned batch, instead of Messages.
	Calls []PlannedCall `json:"calls,omitempty"`
	// Tools narrows what the agent offers: nil offers all, an empty list none.
	Tools        []string          `json:"tools,omitzero"`
	Groups       *Groups           `json:"groups,omitempty"`
	Scope        *Scope            `json:"scope,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Deadline     *time.Time        `json:"deadline,omitempty"`
	Budget       *Budget           `json:"budget,omitempty"`
	OutputSchema json.RawMessage   `json:"output_schema,omitempty"`
	Reason       string            `json:"reason,omitempty"`
}

// Message is one message that the producer brings.
type Message struct {
	Role string `json:"role"`
	// Text is the content when it is a plain string; Parts when it has parts. JSON has either under `content`.
	Text  string `json:"-"`
	Parts []Part `json:"-"`
}

// Part is one part of a message's content.
type Part struct {
	// Type is text, json or image.
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	URL       string          `json:"url,omitempty"`
	Data      string          `json:"data,omitempty"`
	MediaType string          `json:"media_type,omitempty"`
}

// PlannedCall is one call of a planned batch.
type PlannedCall struct {
	ID    string          `json:"id"`
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
}

// Groups switches tool groups for the session.
type Groups struct {
	Enable  []string `json:"enable,omitempty"`
	Disable []string `json:"disable,omitempty"`
}

// Scope says who asks.
type Scope struct {
	PrincipalID string   `json:"principal_id,omitempty"`
	ProjectID   string   `json:"project_id,omitempty"`
	Permissions []string `json:"permissions,omitzero"`
}

// Budget may only lower the agent's.
type Budget struct {
	CostMicros *int64 `json:"cost_micros,omitempty"`
	Tokens     *int64 `json:"tokens,omitempty"`
}
