package llm

import (
	"encoding/json"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

func (a *claude) response(m *anthropic.Message) (*fact.Response, error) {
	if m == nil {
		return nil, invalidResponse("the answer holds no message")
	}
	var doc struct {
		Content json.RawMessage `json:"content"`
	}
	var blocks []struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	if json.Unmarshal([]byte(m.RawJSON()), &doc) != nil || json.Unmarshal(doc.Content, &blocks) != nil {
		return nil, invalidResponse("the answer holds no content that can be read")
	}
	out := &fact.Response{Model: clip(m.Model), Usage: anthropicUsage(m.Usage)}
	var text strings.Builder
	for _, b := range blocks {
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
		case "tool_use":
			out.Calls = append(out.Calls, fact.Asked{Name: b.Name, CallID: b.ID, Arguments: argumentText(b.Input)})
		}
	}
	out.Text = text.String()
	var err error
	if out.FinishReason, err = anthropicFinish(m.StopReason, len(out.Calls)); err != nil {
		return nil, err
	}
	if out.Text != "" || len(out.Calls) > 0 {
		out.Opaque, err = marshal(struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}{"assistant", doc.Content})
		if err != nil {
			return nil, invalidResponse("the answer cannot be encoded again")
		}
	}
	return out, nil
}

// anthropicUsage counts as all providers here do: input includes what came from the cache and what went into it.
func anthropicUsage(u anthropic.Usage) schemas.Usage {
	return schemas.Usage{
		InputTokens:      u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens,
		OutputTokens:     u.OutputTokens,
		CacheReadTokens:  u.CacheReadInputTokens,
		CacheWriteTokens: u.CacheCreationInputTokens,
		ReasoningTokens:  u.OutputTokensDetails.ThinkingTokens,
	}
}

func anthropicFinish(reason anthropic.StopReason, calls int) (string, error) {
	switch reason {
	case anthropic.StopReasonToolUse:
		if calls == 0 {
			return "", invalidResponse("the answer says that it calls tools but names none")
		}
		return schemas.FinishToolCall, nil
	case anthropic.StopReasonEndTurn, anthropic.StopReasonStopSequence:
		if calls > 0 {
			return schemas.FinishToolCall, nil
		}
		return schemas.FinishStop, nil
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		return schemas.FinishLength, nil
	case anthropic.StopReasonRefusal:
		return "", refused("the model refused to answer", nil)
	case anthropic.StopReasonPauseTurn:
		return "", invalidResponse("the model paused for a tool of the provider's own, which it was not offered")
	case "":
		return "", invalidResponse("the answer gives no stop_reason")
	}
	return "", invalidResponse("the answer ends for a reason that is not known: %q", word(string(reason)))
}
