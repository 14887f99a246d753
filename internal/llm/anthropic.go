package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/lathe-run/lathe/internal/fact"
)

// claude speaks the Messages API of Anthropic.
type claude struct {
	cfg      Config
	messages anthropic.MessageService
}

func newAnthropic(cfg Config, client *http.Client) *claude {
	// The service, unlike the SDK's client, reads nothing from the environment.
	opts := []option.RequestOption{
		option.WithEnvironmentProduction(), option.WithHTTPClient(client), option.WithMaxRetries(0), option.WithoutOpenTelemetry(),
		// Without a timeout of its own the SDK refuses what it thinks takes more than ten minutes.
		option.WithRequestTimeout(cfg.Timeout),
	}
	if cfg.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(cfg.BaseURL))
	}
	return &claude{cfg: cfg, messages: anthropic.NewMessageService(opts...)}
}

func (a *claude) prepare(req *fact.Request) (send, error) {
	params, err := a.request(req)
	if err != nil {
		return nil, err
	}
	body, err := params.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return func(ctx context.Context, _ int) (*fact.Response, error) { return a.send(ctx, body) }, nil
}

func (a *claude) send(ctx context.Context, body []byte) (*fact.Response, error) {
	var res *http.Response
	opts := []option.RequestOption{option.WithResponseInto(&res)}
	key, err := a.cfg.key()
	if err != nil {
		return nil, err
	}
	if key != "" {
		opts = append(opts, option.WithAPIKey(key))
	}
	message, err := a.messages.New(ctx, param.Override[anthropic.MessageNewParams](json.RawMessage(body)), opts...)
	if err != nil || res.StatusCode >= http.StatusMultipleChoices {
		return nil, a.cfg.exchangeError(res, err, key)
	}
	return a.response(message)
}
