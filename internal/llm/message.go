package llm

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

const partImage = "image"

var errNotJSON = errors.New("it is not JSON")

// plainText is the text of a message, its parts joined.
func plainText(m *fact.Message) string {
	if len(m.Parts) == 0 {
		return m.Text
	}
	var texts []string
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Type != partImage {
			texts = append(texts, partText(p))
		}
	}
	return strings.Join(texts, "\n")
}

// partText is a text part as it is, and a json part as JSON.
func partText(p *schemas.Part) string {
	if len(p.Value) > 0 {
		return string(p.Value)
	}
	return p.Text
}

// isObject reports whether arguments are what a tool takes.
func isObject(arguments []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(arguments, &object) == nil && object != nil
}

// argumentObject is what a model wrote as arguments, for a server that takes nothing but an object there. What was cut or
// garbled is shown to the model as a text, beside the result that says so.
func argumentObject(arguments []byte) json.RawMessage {
	if isObject(arguments) {
		return arguments
	}
	b, err := marshal(map[string]string{"text": string(arguments)})
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}
