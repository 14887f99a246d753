package llm

import (
	"encoding/json"
	"fmt"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// What one request may ask Anthropic to enforce.
const (
	maxStrictTools  = 20
	maxStrictUnions = 16
)

func (a *claude) request(req *fact.Request) (anthropic.MessageNewParams, error) {
	var out anthropic.MessageNewParams
	p, err := parseParams(req.Spec.Params)
	if err != nil {
		return out, err
	}
	out.Model = requestModel(req, a.cfg)
	out.MaxTokens = p.maxTokens()
	out.Temperature = maybe(p.Temperature)
	out.TopP = maybe(p.TopP)
	out.StopSequences = p.Stop
	if out.Thinking, err = anthropicThinking(p); err != nil {
		return out, err
	}
	if out.Tools, err = anthropicTools(req.Tools, p.strictTools()); err != nil {
		return out, err
	}
	if p.ParallelToolCalls != nil && len(req.Tools) > 0 {
		out.ToolChoice.OfAuto = &anthropic.ToolChoiceAutoParam{DisableParallelToolUse: param.NewOpt(!*p.ParallelToolCalls)}
	}
	enforced, err := anthropicOutput(&out, req.OutputSchema, p)
	if err != nil {
		return out, err
	}
	out.System = anthropicSystem(req, enforced)
	out.Messages, err = anthropicMessages(req.Messages)
	return out, err
}

func maybe[T comparable](v *T) param.Opt[T] {
	if v == nil {
		return param.Opt[T]{}
	}
	return param.NewOpt(*v)
}

// anthropicThinking is written as JSON because the SDK prints a warning of its own for models that have newer ways.
func anthropicThinking(p Params) (anthropic.ThinkingConfigParamUnion, error) {
	if p.Thinking == "" {
		return anthropic.ThinkingConfigParamUnion{}, nil
	}
	raw, err := marshal(struct {
		Type         string `json:"type"`
		BudgetTokens *int64 `json:"budget_tokens,omitempty"`
	}{p.Thinking, p.ThinkingBudgetTokens})
	if err != nil {
		return anthropic.ThinkingConfigParamUnion{}, fmt.Errorf("encode thinking: %w", err)
	}
	return param.Override[anthropic.ThinkingConfigParamUnion](raw), nil
}

func anthropicTools(specs []fact.ToolSpec, strict bool) ([]anthropic.ToolUnionParam, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	out := make([]anthropic.ToolUnionParam, 0, len(specs))
	enforced, unions := 0, 0
	for _, s := range specs {
		if !json.Valid(s.Input) {
			return nil, fmt.Errorf("encode the tool %s: its input schema: %w", s.Name, errNotJSON)
		}
		t := anthropic.ToolParam{Name: s.Name, InputSchema: param.Override[anthropic.ToolInputSchemaParam](json.RawMessage(s.Input))}
		if s.Description != "" {
			t.Description = param.NewOpt(s.Description)
		}
		if n, ok := anthropicDialect().fits(s.Input); ok && strict && enforced < maxStrictTools && unions+n <= maxStrictUnions {
			t.Strict = param.NewOpt(true)
			enforced, unions = enforced+1, unions+n
		}
		out = append(out, anthropic.ToolUnionParam{OfTool: &t})
	}
	return out, nil
}

// anthropicOutput sets effort and the schema of the answer, and reports whether the provider enforces it.
func anthropicOutput(out *anthropic.MessageNewParams, schema []byte, p Params) (enforced bool, err error) {
	out.OutputConfig.Effort = anthropic.OutputConfigEffort(p.ReasoningEffort)
	if len(schema) == 0 {
		return true, nil
	}
	if !json.Valid(schema) {
		return false, fmt.Errorf("encode the output schema: %w", errNotJSON)
	}
	if _, fits := anthropicDialect().fits(schema); !fits {
		return false, nil
	}
	format, err := marshal(struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}{"json_schema", schema})
	if err != nil {
		return false, fmt.Errorf("encode the output schema: %w", err)
	}
	out.OutputConfig.Format = param.Override[anthropic.JSONOutputFormatParam](format)
	return true, nil
}

// anthropicSystem gathers what is said outside of the conversation, as the API has no place for it inside. A schema that it
// does not enforce is told to the model.
func anthropicSystem(req *fact.Request, enforced bool) []anthropic.TextBlockParam {
	var out []anthropic.TextBlockParam
	add := func(text string) {
		if text != "" {
			out = append(out, anthropic.TextBlockParam{Text: text})
		}
	}
	add(req.System)
	for i := range req.Messages {
		if m := &req.Messages[i]; m.Role == fact.RoleSystem {
			add(plainText(m))
		}
	}
	if !enforced {
		add("Your final answer must be JSON alone, without any other text, that fits this JSON Schema:\n" + string(req.OutputSchema))
	}
	return out
}

func anthropicMessages(messages []fact.Message) ([]anthropic.MessageParam, error) {
	out := make([]anthropic.MessageParam, 0, len(messages))
	ids := aliases{}
	var results []anthropic.ContentBlockParamUnion
	// All results of a step belong into one message, right after the one that asked.
	flush := func() {
		if len(results) > 0 {
			out = append(out, anthropic.NewUserMessage(results...))
			results = nil
		}
	}
	for i := range messages {
		m := &messages[i]
		if m.Role != fact.RoleTool && m.Role != fact.RoleSystem {
			flush()
		}
		switch m.Role {
		case fact.RoleSystem:
		case fact.RoleUser:
			out = append(out, anthropic.NewUserMessage(anthropicUser(m)...))
		case fact.RoleAssistant:
			if msg, ok := anthropicAssistant(m, ids); ok {
				out = append(out, msg)
			}
		case fact.RoleTool:
			results = append(results, anthropicResult(m, ids))
		default:
			return nil, fmt.Errorf("encode a message of unknown role %q", m.Role)
		}
	}
	flush()
	return out, nil
}

func anthropicUser(m *fact.Message) []anthropic.ContentBlockParamUnion {
	if len(m.Parts) == 0 {
		return []anthropic.ContentBlockParamUnion{anthropic.NewTextBlock(m.Text)}
	}
	blocks := make([]anthropic.ContentBlockParamUnion, 0, len(m.Parts))
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Type == partImage {
			blocks = append(blocks, anthropicImage(p))
		} else {
			blocks = append(blocks, anthropic.NewTextBlock(partText(p)))
		}
	}
	return blocks
}

func anthropicImage(p *schemas.Part) anthropic.ContentBlockParamUnion {
	if p.URL != "" {
		return anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: p.URL})
	}
	return anthropic.NewImageBlockBase64(p.MediaType, p.Data)
}

func anthropicResult(m *fact.Message, ids aliases) anthropic.ContentBlockParamUnion {
	r := anthropic.ToolResultBlockParam{ToolUseID: ids.of(m.CallID)}
	if m.Text != "" {
		r.Content = []anthropic.ToolResultBlockParamContentUnion{{OfText: &anthropic.TextBlockParam{Text: m.Text}}}
	}
	if m.Failed {
		r.IsError = param.NewOpt(true)
	}
	return anthropic.ContentBlockParamUnion{OfToolResult: &r}
}

// anthropicAssistant gives back what this provider sent, thinking included, and writes anew what another did or a producer
// brought. The API takes no empty text and no empty message: there is nothing to send then.
func anthropicAssistant(m *fact.Message, ids aliases) (anthropic.MessageParam, bool) {
	if m.Provider == ProviderAnthropic && len(m.Opaque) > 0 {
		for _, c := range m.Calls {
			ids.own(c.CallID)
		}
		return param.Override[anthropic.MessageParam](json.RawMessage(m.Opaque)), true
	}
	var blocks []anthropic.ContentBlockParamUnion
	if text := plainText(m); text != "" {
		blocks = append(blocks, anthropic.NewTextBlock(text))
	}
	for _, c := range m.Calls {
		blocks = append(blocks, anthropic.NewToolUseBlock(ids.foreign(c.CallID), argumentObject(c.Arguments), c.Name))
	}
	return anthropic.NewAssistantMessage(blocks...), len(blocks) > 0
}
