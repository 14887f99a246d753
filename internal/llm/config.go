package llm

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

const (
	defaultTimeout     = 2 * time.Minute
	defaultConcurrency = 32
	// defaultAttempts outlasts the longest turn by default; it is there for callers without a deadline.
	defaultAttempts = 32
)

// Config is one model of the manifest.
type Config struct {
	// Name is what agents call the model.
	Name string
	// Provider is openai, anthropic or scripted.
	Provider string
	// Model is the provider's name of it; not used by scripted.
	Model string
	// BaseURL is where the API is, with its version for openai (https://host/v1), without it for anthropic. Default: the
	// provider's own service.
	BaseURL string
	// Key returns the API key. It is asked for every request, so that a key may change. nil sends none, for servers of one's own.
	Key func() (string, error)
	// Params are what the model is asked with.
	Params Params
	// Timeout bounds one request, not its repetitions. Default 2 min; scripted has none.
	Timeout time.Duration
	// Concurrency is how many requests may be under way at once. Default 32; scripted has no bound.
	Concurrency int
	// Attempts is how often a request is made at most; usually the turn's time ends first. Default 32.
	Attempts int
	// Price turns usage into cost; nil leaves the cost unknown.
	Price *Price
	// ScriptPath is the YAML file of a scripted model; see Script.
	ScriptPath string
	// Scripted is a scripted model made in Go, instead of ScriptPath.
	Scripted *Scripted
}

// Price is what a million tokens cost, in millionths of a dollar.
type Price struct {
	InputMicrosPerMTok  int64
	OutputMicrosPerMTok int64
	// CachedMicrosPerMTok is for input tokens read from the provider's cache; nil is the input price.
	CachedMicrosPerMTok *int64
}

// cost is the price of the usage in millionths of a dollar, rounded to the nearest.
func (p *Price) cost(u schemas.Usage) *int64 {
	if p == nil {
		return nil
	}
	cached := p.InputMicrosPerMTok
	if p.CachedMicrosPerMTok != nil {
		cached = *p.CachedMicrosPerMTok
	}
	sum := max(u.InputTokens-u.CacheReadTokens, 0)*p.InputMicrosPerMTok +
		u.CacheReadTokens*cached +
		u.OutputTokens*p.OutputMicrosPerMTok
	micros := (sum + 500_000) / 1_000_000
	return &micros
}

func (c Config) withDefaults() Config {
	if c.Attempts == 0 {
		c.Attempts = defaultAttempts
	}
	if c.Provider == ProviderScripted {
		return c
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	return c
}

// fault names a field of the model as the manifest has it.
func (c Config) fault(field, text string) error {
	return fmt.Errorf("models.%s.%s: %s", c.Name, field, text)
}

// validate returns every fault of the configuration.
func (c Config) validate() []error {
	var faults []error
	add := func(field, text string) { faults = append(faults, c.fault(field, text)) }
	if c.Name == "" {
		add("name", "is missing")
	}
	if c.Timeout < 0 {
		add("timeout", "must not be negative")
	}
	if c.Concurrency < 0 {
		add("concurrency", "must not be negative")
	}
	if c.Attempts < 0 {
		add("attempts", "must not be negative")
	}
	if p := c.Price; p != nil && (p.InputMicrosPerMTok < 0 || p.OutputMicrosPerMTok < 0 || (p.CachedMicrosPerMTok != nil && *p.CachedMicrosPerMTok < 0)) {
		add("price", "must not be negative")
	}
	switch c.Provider {
	case ProviderOpenAI, ProviderAnthropic:
		c.validateService(add)
		c.Params.validate(c.Provider, add)
	case ProviderScripted:
		if (c.ScriptPath == "") == (c.Scripted == nil) {
			add("script", "name the YAML file of the script")
		}
	default:
		add("provider", fmt.Sprintf("%q is none of openai, anthropic, scripted", c.Provider))
	}
	return faults
}

func (c Config) validateService(add func(field, text string)) {
	if c.Model == "" {
		add("model", "is missing: name the provider's model")
	}
	if c.ScriptPath != "" || c.Scripted != nil {
		add("script", "is only for the provider scripted")
	}
	if c.BaseURL != "" {
		if err := checkBaseURL(c.Provider, c.BaseURL); err != nil {
			add("base_url", err.Error())
		}
	}
	if c.Key == nil {
		if c.BaseURL == "" {
			add("api_key_env", "is missing: the provider's own service needs a key, in api_key_env or api_key_file")
		}
		return
	}
	key, err := c.Key()
	switch {
	case err != nil:
		add("api_key", err.Error())
	case key == "":
		add("api_key", "is empty: set the variable or fill the file that api_key_env or api_key_file names")
	}
}

func checkBaseURL(provider, base string) error {
	u, err := url.Parse(base)
	if err != nil {
		// The parser's error quotes the URL, which may hold a password.
		return errors.New("is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("must start with http:// or https:// and a host")
	case u.User != nil:
		return errors.New("must hold no user or password: use api_key_env or api_key_file")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("must hold no query or fragment")
	case provider == ProviderAnthropic && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1"):
		return errors.New("must not end in /v1, which is added")
	}
	return nil
}

// key is the API key for the next request, empty when the server needs none.
func (c Config) key() (string, error) {
	if c.Key == nil {
		return "", nil
	}
	key, err := c.Key()
	if err != nil {
		return "", &schemas.Error{
			Code: schemas.CodeModelUnavailable, Err: err,
			Message: "the key cannot be read: check api_key_env or api_key_file of model " + c.Name,
		}
	}
	return key, nil
}
