package llm

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// openAIMessage is the assistant message with the forms that servers really send: content as text, null or parts, arguments
// as text or as an object.
type openAIMessage struct {
	Content   json.RawMessage `json:"content"`
	Refusal   string          `json:"refusal"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (o *openAI) response(req *fact.Request, c *openai.ChatCompletion) (*fact.Response, error) {
	if c == nil || len(c.Choices) == 0 {
		return nil, o.noChoice(c)
	}
	raw := json.RawMessage(c.Choices[0].Message.RawJSON())
	var msg openAIMessage
	if err := json.Unmarshal(raw, &msg); err != nil {
		return nil, invalidResponse("the answer holds no message that can be read")
	}
	if msg.Refusal != "" {
		return nil, refused("the model refused to answer", nil)
	}
	out := &fact.Response{
		Text: openAIText(msg.Content), Model: clip(c.Model),
		Usage: schemas.Usage{
			InputTokens: c.Usage.PromptTokens, OutputTokens: c.Usage.CompletionTokens,
			CacheReadTokens:  c.Usage.PromptTokensDetails.CachedTokens,
			CacheWriteTokens: c.Usage.PromptTokensDetails.CacheWriteTokens,
			ReasoningTokens:  c.Usage.CompletionTokensDetails.ReasoningTokens,
		},
	}
	for _, tc := range msg.ToolCalls {
		out.Calls = append(out.Calls, fact.Asked{Name: tc.Function.Name, CallID: tc.ID, Arguments: argumentText(tc.Function.Arguments)})
	}
	var err error
	if out.FinishReason, err = o.finish(c.Choices[0].FinishReason, len(out.Calls)); err != nil {
		return nil, err
	}
	if out.Text == "" && len(out.Calls) == 0 {
		// Nothing worth sending back, and no server takes a message without content.
		return out, nil
	}
	out.Opaque, err = o.sendable(raw, &msg, out.Calls, req)
	return out, err
}

// noChoice tells a gateway that reports the trouble of the server behind it under status 200 from one that makes no sense.
func (o *openAI) noChoice(c *openai.ChatCompletion) error {
	if c != nil {
		var doc struct {
			Error struct {
				Code int `json:"code"`
			} `json:"error"`
		}
		if json.Unmarshal([]byte(c.RawJSON()), &doc) == nil && doc.Error.Code >= 400 && doc.Error.Code < 600 {
			return o.cfg.statusError(nil, &apiError{status: doc.Error.Code})
		}
	}
	return invalidResponse("the answer holds no choice")
}

func (o *openAI) finish(reason string, calls int) (string, error) {
	switch reason {
	case "stop", "tool_calls":
		if calls > 0 {
			return schemas.FinishToolCall, nil
		}
		if reason == "stop" {
			return schemas.FinishStop, nil
		}
		return "", invalidResponse("the answer says that it calls tools but names none")
	case "length", "model_length":
		return schemas.FinishLength, nil
	case "content_filter":
		return schemas.FinishContentFilter, nil
	case "error", "insufficient_system_resource":
		return "", o.cfg.unavailable(0, "the model's server broke off", nil)
	case "":
		return "", invalidResponse("the answer gives no finish_reason")
	}
	return "", invalidResponse("the answer ends for a reason that is not known: %q", word(reason))
}

// openAIText is the content, or the text among its parts; reasoning is not part of the answer.
func openAIText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// argumentText is the text the model wrote; some servers have parsed it already, and some send nothing for no arguments.
func argumentText(raw json.RawMessage) []byte {
	written := unquoted(raw)
	if len(written) == 0 {
		return []byte("{}")
	}
	return written
}

func unquoted(raw json.RawMessage) []byte {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []byte(text)
	}
	return raw
}

// sendable returns the message as it can be sent back: as it came, unless its own server would refuse that. A call without an
// id, or with that of another, gets one that its result can name. Arguments that are no JSON object, as a cut answer leaves
// them, are taken by OpenAI but fail the next request to vLLM, Ollama and others.
func (o *openAI) sendable(raw json.RawMessage, msg *openAIMessage, calls []fact.Asked, req *fact.Request) ([]byte, error) {
	mend := make([]bool, len(calls))
	seen := make(map[string]bool, len(calls))
	for i := range calls {
		if id := calls[i].CallID; id == "" || seen[id] {
			calls[i].CallID = madeID(req.TurnID, req.Step, i)
			mend[i] = true
		}
		seen[calls[i].CallID] = true
		mend[i] = mend[i] || !isOpenAI(o.cfg.BaseURL) && !isObject(unquoted(msg.ToolCalls[i].Function.Arguments))
	}
	if !slices.Contains(mend, true) {
		return raw, nil
	}
	out, err := mended(raw, calls, mend)
	if err != nil {
		return nil, invalidResponse("the answer holds calls that cannot be read")
	}
	return out, nil
}

// mended rewrites id and arguments of some calls in a message; all else stays.
func mended(raw json.RawMessage, calls []fact.Asked, mend []bool) ([]byte, error) {
	var msg map[string]json.RawMessage
	if err := json.Unmarshal(raw, &msg); err != nil {
		return nil, err
	}
	var toolCalls []map[string]json.RawMessage
	if err := json.Unmarshal(msg["tool_calls"], &toolCalls); err != nil {
		return nil, err
	}
	for i, c := range toolCalls {
		if !mend[i] {
			continue
		}
		if err := mendCall(c, calls[i]); err != nil {
			return nil, err
		}
	}
	var err error
	if msg["tool_calls"], err = marshal(toolCalls); err != nil {
		return nil, err
	}
	return marshal(msg)
}

func mendCall(c map[string]json.RawMessage, asked fact.Asked) error {
	var err error
	if c["id"], err = marshal(asked.CallID); err != nil {
		return err
	}
	var function map[string]json.RawMessage
	if err := json.Unmarshal(c["function"], &function); err != nil {
		return err
	}
	if isObject(unquoted(function["arguments"])) {
		return nil
	}
	if function["arguments"], err = marshal(string(argumentObject(asked.Arguments))); err != nil {
		return err
	}
	c["function"], err = marshal(function)
	return err
}

// clip bounds a name that comes from outside.
func clip(s string) string {
	const longest = 128
	if len(s) > longest {
		return strings.ToValidUTF8(s[:longest], "")
	}
	return s
}
