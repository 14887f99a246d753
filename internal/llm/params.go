package llm

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gowebpki/jcs"
)

// Params are what a model is asked with. What is absent is left to the provider.
type Params struct {
	// MaxOutputTokens bounds the answer, reasoning included. Anthropic needs a bound: 8192 when it is absent.
	MaxOutputTokens *int64 `json:"max_output_tokens,omitempty" yaml:"max_output_tokens"`
	// ParallelToolCalls false asks for at most one call a step.
	ParallelToolCalls *bool `json:"parallel_tool_calls,omitempty" yaml:"parallel_tool_calls"`
	// ReasoningEffort is the provider's word: low, medium, high and others.
	ReasoningEffort string `json:"reasoning_effort,omitempty" yaml:"reasoning_effort"`
	// Seed is for openai.
	Seed *int64   `json:"seed,omitempty" yaml:"seed"`
	Stop []string `json:"stop,omitempty" yaml:"stop"`
	// StrictTools false does not ask the provider to enforce tool schemas, for models that can't. Arguments are checked either
	// way.
	StrictTools *bool    `json:"strict_tools,omitempty" yaml:"strict_tools"`
	Temperature *float64 `json:"temperature,omitempty" yaml:"temperature"`
	// Thinking is for anthropic: adaptive, enabled (with ThinkingBudgetTokens) or disabled.
	Thinking             string   `json:"thinking,omitempty" yaml:"thinking"`
	ThinkingBudgetTokens *int64   `json:"thinking_budget_tokens,omitempty" yaml:"thinking_budget_tokens"`
	TopP                 *float64 `json:"top_p,omitempty" yaml:"top_p"`
}

// canonical is the JSON that a turn records (RFC 8785), nil when nothing is set.
func (p Params) canonical() ([]byte, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if bytes.Equal(b, []byte("{}")) {
		return nil, nil
	}
	b, err = jcs.Transform(b)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return b, nil
}

// parseParams reads what a turn recorded. A key that this release does not know is passed over: after a rollback a turn
// under way had better go on without it.
func parseParams(b []byte) (Params, error) {
	var p Params
	if len(b) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("read the recorded params: %w", err)
	}
	return p, nil
}

func (p Params) strictTools() bool { return p.StrictTools == nil || *p.StrictTools }

// validate adds a fault for each value out of range and each param that the provider does not have.
func (p Params) validate(provider string, add func(field, text string)) {
	within := func(field string, v *float64, low, high float64) {
		if v != nil && (*v < low || *v > high) {
			add("params."+field, fmt.Sprintf("%v is not within %v and %v", *v, low, high))
		}
	}
	hottest := 2.0
	if provider == ProviderAnthropic {
		hottest = 1
	}
	within("temperature", p.Temperature, 0, hottest)
	within("top_p", p.TopP, 0, 1)
	if v := p.MaxOutputTokens; v != nil && *v < 1 {
		add("params.max_output_tokens", "must be at least 1")
	}
	for _, f := range p.foreign(provider) {
		add("params."+f, "the provider "+provider+" has no such param")
	}
	if provider == ProviderAnthropic {
		p.validateThinking(add)
	}
}

// foreign lists the params that are set and that the provider does not have.
func (p Params) foreign(provider string) []string {
	var fields []string
	note := func(field string, set bool) {
		if set {
			fields = append(fields, field)
		}
	}
	if provider == ProviderAnthropic {
		note("seed", p.Seed != nil)
		return fields
	}
	note("thinking", p.Thinking != "")
	note("thinking_budget_tokens", p.ThinkingBudgetTokens != nil)
	return fields
}

func (p Params) validateThinking(add func(field, text string)) {
	if p.Thinking == "adaptive" || p.Thinking == "enabled" {
		if p.Temperature != nil && *p.Temperature != 1 {
			add("params.temperature", "must be 1 or absent with thinking")
		}
		if p.TopP != nil && *p.TopP < 0.95 {
			add("params.top_p", "must be at least 0.95 or absent with thinking")
		}
	}
	switch p.Thinking {
	case "", "adaptive", "disabled":
		if p.ThinkingBudgetTokens != nil {
			add("params.thinking_budget_tokens", "needs thinking: enabled")
		}
	case "enabled":
		if b := p.ThinkingBudgetTokens; b == nil || *b < 1024 || *b >= p.maxTokens() {
			add("params.thinking_budget_tokens", fmt.Sprintf("must be at least 1024 and below max_output_tokens (%d)", p.maxTokens()))
		}
	default:
		add("params.thinking", fmt.Sprintf("%q is none of adaptive, enabled, disabled", p.Thinking))
	}
}

// maxTokens is the bound that anthropic needs.
func (p Params) maxTokens() int64 {
	if p.MaxOutputTokens != nil {
		return *p.MaxOutputTokens
	}
	return 8192
}
