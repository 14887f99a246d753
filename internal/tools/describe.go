package tools

import (
	"encoding/json"
	"fmt"

	"github.com/lathe-run/lathe/schemas"
)

// Format names a way to print tools.
type Format string

// The formats: what the two model providers and MCP clients are given.
const (
	FormatOpenAI    Format = "openai"
	FormatAnthropic Format = "anthropic"
	FormatMCP       Format = "mcp"
)

// Describe returns the agent's tools as the model sees them: a JSON array in the form of a provider or of MCP.
func (b *Bound) Describe(format Format) ([]byte, error) {
	list := make([]any, 0, len(b.tools))
	for _, t := range b.tools {
		switch format {
		case FormatOpenAI:
			list = append(list, openAITool{"function", openAIFunction{t.spec.Name, t.spec.Description, t.spec.Input}})
		case FormatAnthropic:
			list = append(list, anthropicTool{t.spec.Name, t.spec.Description, t.spec.Input})
		case FormatMCP:
			list = append(list, t.mcp())
		default:
			return nil, fmt.Errorf("describe tools: unknown format %q, use openai, anthropic or mcp", format)
		}
	}
	raw, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("describe tools of agent %s: %w", b.agent, err)
	}
	return raw, nil
}

type openAITool struct {
	Type     string         `json:"type"`
	Function openAIFunction `json:"function"`
}

type openAIFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type mcpTool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  mcpAnnotations  `json:"annotations"`
}

type mcpAnnotations struct {
	ReadOnly    bool  `json:"readOnlyHint"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	Idempotent  bool  `json:"idempotentHint"`
}

// mcp describes a tool to an MCP client, which takes output schemas of objects only.
func (t *boundTool) mcp() mcpTool {
	m := mcpTool{Name: t.spec.Name, Description: t.spec.Description, InputSchema: t.spec.Input}
	if t.output != nil {
		if doc, ok := t.output.doc.(map[string]any); ok && doc["type"] == "object" {
			m.OutputSchema = t.output.raw
		}
	}
	m.Annotations = mcpAnnotations{
		ReadOnly:    t.id.Effect == schemas.EffectNone || t.id.Effect == schemas.EffectRead,
		Destructive: t.opts.Hints.Destructive,
		Idempotent:  t.id.Idempotency == schemas.SafeToRetry,
	}
	return m
}
