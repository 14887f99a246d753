package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"

	"github.com/lathe-run/lathe/internal/fact"
)

const openAIBaseURL = "https://api.openai.com/v1"

// openAI speaks Chat Completions, which OpenAI, vLLM, Ollama, Mistral and many others serve. Where they differ it takes what
// any of them sends, and sends what all of them take.
type openAI struct {
	cfg  Config
	chat openai.ChatCompletionService
}

func newOpenAI(cfg Config, client *http.Client) *openAI {
	base := cfg.BaseURL
	if base == "" {
		base = openAIBaseURL
	}
	// The service, unlike the SDK's client, reads nothing from the environment.
	return &openAI{cfg: cfg, chat: openai.NewChatCompletionService(
		option.WithBaseURL(base), option.WithHTTPClient(client), option.WithMaxRetries(0))}
}

func (o *openAI) prepare(req *fact.Request) (send, error) {
	params, err := o.request(req)
	if err != nil {
		return nil, err
	}
	body, err := params.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return func(ctx context.Context, _ int) (*fact.Response, error) { return o.send(ctx, req, body) }, nil
}

func (o *openAI) send(ctx context.Context, req *fact.Request, body []byte) (*fact.Response, error) {
	var res *http.Response
	opts := []option.RequestOption{option.WithResponseInto(&res)}
	key, err := o.cfg.key()
	if err != nil {
		return nil, err
	}
	if key != "" {
		opts = append(opts, option.WithAPIKey(key))
	}
	completion, err := o.chat.New(ctx, param.Override[openai.ChatCompletionNewParams](json.RawMessage(body)), opts...)
	if err != nil || res.StatusCode >= http.StatusMultipleChoices {
		return nil, o.cfg.exchangeError(res, err, key)
	}
	return o.response(req, completion)
}
