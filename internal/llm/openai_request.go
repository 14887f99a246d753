package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

func (o *openAI) request(req *fact.Request) (openai.ChatCompletionNewParams, error) {
	var out openai.ChatCompletionNewParams
	p, err := parseParams(req.Spec.Params)
	if err != nil {
		return out, err
	}
	out.Model = requestModel(req, o.cfg)
	o.setParams(&out, p)
	if len(req.OutputSchema) > 0 {
		if out.ResponseFormat, err = openAIFormat(req.OutputSchema); err != nil {
			return out, err
		}
	}
	if out.Tools, err = openAITools(req.Tools, p.strictTools()); err != nil {
		return out, err
	}
	if p.ParallelToolCalls != nil && len(req.Tools) > 0 {
		out.ParallelToolCalls = param.NewOpt(*p.ParallelToolCalls)
	}
	out.Messages, err = openAIMessages(req)
	return out, err
}

func (o *openAI) setParams(out *openai.ChatCompletionNewParams, p Params) {
	out.Temperature = opt(p.Temperature)
	out.TopP = opt(p.TopP)
	out.Seed = opt(p.Seed)
	out.ReasoningEffort = shared.ReasoningEffort(p.ReasoningEffort)
	if len(p.Stop) > 0 {
		out.Stop.OfStringArray = p.Stop
	}
	if isOpenAI(o.cfg.BaseURL) {
		out.MaxCompletionTokens = opt(p.MaxOutputTokens)
	} else {
		out.MaxTokens = opt(p.MaxOutputTokens)
	}
}

func opt[T comparable](v *T) param.Opt[T] {
	if v == nil {
		return param.Opt[T]{}
	}
	return param.NewOpt(*v)
}

// isOpenAI reports whether the bound on tokens has its new name. OpenAI's reasoning models refuse the old one, Mistral and
// Ollama know no other.
func isOpenAI(base string) bool {
	if base == "" {
		return true
	}
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return host == "api.openai.com" || strings.HasSuffix(host, ".api.openai.com") || strings.HasSuffix(host, ".openai.azure.com")
}

// rawSchema marks JSON that is sent byte for byte: the order of a schema's properties is the order in which a model fills
// them, and a map would sort them.
type rawSchema = json.RawMessage

func openAIFormat(schema []byte) (openai.ChatCompletionNewParamsResponseFormatUnion, error) {
	if !json.Valid(schema) {
		return openai.ChatCompletionNewParamsResponseFormatUnion{}, fmt.Errorf("encode the output schema: %w", errNotJSON)
	}
	_, strict := openAIDialect().fits(schema)
	return openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: "answer", Schema: rawSchema(schema), Strict: param.NewOpt(strict),
		},
	}}, nil
}

func openAITools(specs []fact.ToolSpec, strict bool) ([]openai.ChatCompletionToolUnionParam, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	out := make([]openai.ChatCompletionToolUnionParam, 0, len(specs))
	for _, s := range specs {
		fn := struct {
			Name        string    `json:"name"`
			Description string    `json:"description,omitempty"`
			Parameters  rawSchema `json:"parameters,omitempty"`
			Strict      bool      `json:"strict,omitempty"`
		}{Name: s.Name, Description: s.Description, Parameters: s.Input}
		if strict {
			_, fn.Strict = openAIDialect().fits(s.Input)
		}
		raw, err := marshal(fn)
		if err != nil {
			return nil, fmt.Errorf("encode the tool %s: %w", s.Name, err)
		}
		out = append(out, openai.ChatCompletionFunctionTool(param.Override[shared.FunctionDefinitionParam](raw)))
	}
	return out, nil
}

// marshal encodes without the escapes that are only good for HTML.
func marshal(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

func openAIMessages(req *fact.Request) ([]openai.ChatCompletionMessageParamUnion, error) {
	out := make([]openai.ChatCompletionMessageParamUnion, 0, len(req.Messages)+1)
	if req.System != "" {
		out = append(out, openai.SystemMessage(req.System))
	}
	ids := aliases{}
	for i := range req.Messages {
		m := &req.Messages[i]
		switch m.Role {
		case fact.RoleSystem:
			out = append(out, openai.SystemMessage(plainText(m)))
		case fact.RoleUser:
			out = append(out, openAIUser(m))
		case fact.RoleAssistant:
			out = append(out, openAIAssistant(m, ids))
		case fact.RoleTool:
			out = append(out, openai.ToolMessage(m.Text, ids.of(m.CallID)))
		default:
			return nil, fmt.Errorf("encode a message of unknown role %q", m.Role)
		}
	}
	return out, nil
}

func openAIUser(m *fact.Message) openai.ChatCompletionMessageParamUnion {
	if len(m.Parts) == 0 {
		return openai.UserMessage(m.Text)
	}
	parts := make([]openai.ChatCompletionContentPartUnionParam, 0, len(m.Parts))
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Type == partImage {
			parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: imageURL(p)}))
			continue
		}
		parts = append(parts, openai.TextContentPart(partText(p)))
	}
	return openai.UserMessage(parts)
}

func imageURL(p *schemas.Part) string {
	if p.URL != "" {
		return p.URL
	}
	return "data:" + p.MediaType + ";base64," + p.Data
}

// openAIAssistant gives back what this provider sent, and writes anew what another did or a producer brought.
func openAIAssistant(m *fact.Message, ids aliases) openai.ChatCompletionMessageParamUnion {
	if m.Provider == ProviderOpenAI && len(m.Opaque) > 0 {
		for _, c := range m.Calls {
			ids.own(c.CallID)
		}
		return param.Override[openai.ChatCompletionMessageParamUnion](json.RawMessage(m.Opaque))
	}
	var a openai.ChatCompletionAssistantMessageParam
	if text := plainText(m); text != "" || len(m.Calls) == 0 {
		a.Content.OfString = param.NewOpt(text)
	}
	for _, c := range m.Calls {
		a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: ids.foreign(c.CallID),
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: c.Name, Arguments: string(argumentObject(c.Arguments)),
				},
			},
		})
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &a}
}
