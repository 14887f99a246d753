package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

const (
	// maxManifest and maxManifestText bound the manifest and the files it names.
	maxManifest     = 4 * MiB
	maxManifestText = 1 * MiB

	defaultModelTimeout     = 2 * time.Minute
	defaultModelConcurrency = 32
)

// Manifest says which agents a worker runs, with which models and tools. Its keys are those of the yaml tags;
// docs/manifest.md and the JSON Schema for editors are generated from the tags.
type Manifest struct {
	Version int                      `yaml:"version" required:"true" min:"1" max:"1" desc:"version of this format: 1"`
	Agents  map[string]ManifestAgent `yaml:"agents" required:"true" desc:"the agents by name; a turn names one of them, and need not if there is only one"`
	Models  map[string]ManifestModel `yaml:"models" required:"true" desc:"the models by a name of your own, which agents use"`
	Tools   map[string]ManifestTool  `yaml:"tools" desc:"settings of tools by the name they have in the program; what is set here wins"`

	_ struct{} `later:"mcp_servers"`
}

// ManifestAgent is one agent.
type ManifestAgent struct {
	Model            string     `yaml:"model" required:"true" desc:"a name under models"`
	System           string     `yaml:"system" text:"true" desc:"the system prompt"`
	SystemFile       string     `yaml:"system_file" path:"true" desc:"file with the system prompt, relative to the manifest; instead of system"`
	Tools            []string   `yaml:"tools" desc:"names of the tools the agent may call; * stands for any characters (\"crm_*\")"`
	History          string     `yaml:"history" default:"session" oneof:"session|none" desc:"session: a turn sees the earlier turns of the session that it names. none: each turn starts afresh"`
	Limits           TurnLimits `yaml:"limits" desc:"bounds of one turn; a turn at a bound ends as failed and says which. What is not set here is what the LATHE_TURN_ settings say"`
	OnUnknownOutcome string     `yaml:"on_unknown_outcome" default:"end" oneof:"end|continue" desc:"when a call that may have changed something has no known outcome: end the turn, or tell the model and go on"`
	OnToolError      string     `yaml:"on_tool_error" default:"continue" oneof:"continue|fail" desc:"when a call fails otherwise: tell the model and go on, or fail the turn"`

	_ struct{} `later:"permissions,enabled_groups=tool groups,budget,policy"`

	// said are the limits as written, 0 where nothing was.
	said TurnLimits
}

// ManifestModel is one model. APIKey is what api_key_env or api_key_file hold, read when the manifest is; APIKeyFile and
// Script are made absolute or relative to the working directory.
type ManifestModel struct {
	Provider    string         `yaml:"provider" required:"true" oneof:"openai|anthropic|scripted" desc:"whose API it speaks. openai is the Chat Completions API, which most servers offer (vLLM, Ollama, Mistral). scripted answers from a file, for tests and demos"`
	Model       string         `yaml:"model" desc:"the provider's name of the model; required but for scripted"`
	BaseURL     string         `yaml:"base_url" shown:"the provider's" desc:"HTTP or HTTPS URL of a compatible server"`
	APIKeyEnv   string         `yaml:"api_key_env" desc:"name of the environment variable that holds the API key"`
	APIKeyFile  string         `yaml:"api_key_file" path:"true" desc:"file that holds the API key, relative to the manifest; instead of api_key_env. A server of your own (base_url) may need neither"`
	APIKey      Secret         `yaml:"-"`
	Params      ManifestParams `yaml:"params" desc:"sent with each request; what is not set is not sent"`
	Timeout     time.Duration  `yaml:"timeout" shown:"2m; none for scripted" min:"1ms" desc:"time for one request, not of its repetitions"`
	Concurrency int            `yaml:"concurrency" shown:"32; no bound for scripted" min:"1" desc:"requests at once, over all agents of this worker"`
	Price       *ManifestPrice `yaml:"price" shown:"cost unknown" desc:"what tokens cost; with it, turns report their cost"`
	Script      string         `yaml:"script" path:"true" desc:"the script of a scripted model, relative to the manifest"`
}

// ManifestParams are the parameters of a request; what is not set is not sent. It has the fields and the JSON of
// llm.Params, which knows what each provider has.
type ManifestParams struct {
	MaxOutputTokens      *int64   `yaml:"max_output_tokens" json:"max_output_tokens,omitempty" min:"1" shown:"the provider's; 8192 for anthropic" desc:"longest response in tokens, reasoning included"`
	ParallelToolCalls    *bool    `yaml:"parallel_tool_calls" json:"parallel_tool_calls,omitempty" desc:"false asks for at most one call a step"`
	ReasoningEffort      string   `yaml:"reasoning_effort" json:"reasoning_effort,omitempty" desc:"the provider's word for it, such as low, medium or high"`
	Seed                 *int64   `yaml:"seed" json:"seed,omitempty" desc:"makes a response repeatable, where a server can. openai only"`
	Stop                 []string `yaml:"stop" json:"stop,omitempty" text:"true" desc:"texts that end a response"`
	StrictTools          *bool    `yaml:"strict_tools" json:"strict_tools,omitempty" shown:"true" desc:"false does not ask the provider to enforce the tools' schemas, for models that cannot; arguments are checked either way"`
	Temperature          *float64 `yaml:"temperature" json:"temperature,omitempty" min:"0" max:"2" desc:"how freely tokens are chosen; for anthropic at most 1"`
	Thinking             string   `yaml:"thinking" json:"thinking,omitempty" oneof:"adaptive|enabled|disabled" desc:"thinking before the answer. anthropic only"`
	ThinkingBudgetTokens *int64   `yaml:"thinking_budget_tokens" json:"thinking_budget_tokens,omitempty" min:"1024" desc:"most tokens of thinking: enabled; below max_output_tokens"`
	TopP                 *float64 `yaml:"top_p" json:"top_p,omitempty" min:"0" max:"1" desc:"choose among the likeliest tokens that add up to this"`
}

// ManifestPrice is what a million tokens cost, in millionths of a dollar. It has the fields of llm.Price.
type ManifestPrice struct {
	InputMicrosPerMTok  int64  `yaml:"input_micros_per_mtok" min:"0" default:"0" desc:"a million input tokens, in millionths of a dollar"`
	OutputMicrosPerMTok int64  `yaml:"output_micros_per_mtok" min:"0" default:"0" desc:"a million output tokens, likewise"`
	CachedMicrosPerMTok *int64 `yaml:"cached_micros_per_mtok" min:"0" shown:"as input" desc:"a million input tokens read from the provider's cache, likewise"`
}

// ManifestTool holds what the manifest sets of a tool that the program defines; a zero field leaves what the program set.
type ManifestTool struct {
	Version          string              `yaml:"version" desc:"version of the tool, at most 128 characters"`
	Description      string              `yaml:"description" text:"true" desc:"what the model is told of it, at most 4,096 characters"`
	Effect           schemas.Effect      `yaml:"effect" oneof:"none|read|write|host" desc:"what a call may do to the world outside; host runs work on your own infrastructure"`
	Idempotency      schemas.Idempotency `yaml:"idempotency" oneof:"safe_to_retry|at_most_once" desc:"whether a call whose outcome is unknown may run again"`
	Retry            *ManifestRetry      `yaml:"retry" desc:"retries after a failure: a number, without waiting, or a policy"`
	Timeout          time.Duration       `yaml:"timeout" min:"1ms" desc:"time for one attempt; not above the turn's duration"`
	MaxResultBytes   ByteSize            `yaml:"max_result_bytes" min:"1KiB" desc:"largest result; a larger one is an error, never cut"`
	RequiresApproval ManifestGate        `yaml:"requires_approval" text:"true" desc:"a worker cannot wait for a person: anything but false makes it refuse to start, naming the tool"`
	ApprovalTimeout  time.Duration       `yaml:"approval_timeout" min:"0s" desc:"goes with requires_approval and is refused likewise"`

	_ struct{} `later:"cache_ttl=result caches,cache_scope=result caches,group=tool groups,capabilities=permissions,cost_micros=budgets,guards,inject=injected arguments,strip_nulls=MCP tools,disabled,url=HTTP tools,method=HTTP tools,query=HTTP tools,headers=HTTP tools,body=HTTP tools,input=HTTP tools,output=HTTP tools"`
}

// ManifestGate is the value of requires_approval: empty for none, ManifestGateAlways for true, else a condition.
type ManifestGate string

// ManifestGateAlways is a gate that asks for each call.
const ManifestGateAlways ManifestGate = "true"

// ManifestRetry says how a failed call is tried again. One written as a number waits for nothing. It has the fields of
// tools.Retry.
type ManifestRetry struct {
	Retries    int           `yaml:"retries" required:"true" min:"0" max:"100" desc:"how often, after the first attempt"`
	Initial    time.Duration `yaml:"initial" default:"100ms" min:"0s" desc:"wait before the first retry"`
	Max        time.Duration `yaml:"max" default:"10s" min:"0s" desc:"longest wait"`
	Multiplier float64       `yaml:"multiplier" default:"2" min:"1" desc:"by what each wait is longer than the last"`
	Jitter     float64       `yaml:"jitter" default:"0.2" min:"0" max:"1" desc:"part of each wait that is random"`
}

// LoadManifest reads the manifest at path and the files it names. env gives the environment variables that it names; a
// manifest that is wrong gives all its faults at once, each a *ManifestError.
func LoadManifest(path string, env func(string) (string, bool)) (*Manifest, error) {
	content, err := readCapped(path, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return parseManifest(path, content, env)
}

func parseManifest(path string, content []byte, env func(string) (string, bool)) (*Manifest, error) {
	d := newManifestDecoder(path)
	m := &Manifest{}
	d.decodeFile(content, m)
	// A manifest that cannot be read as YAML has nothing to check.
	if !d.unreadable {
		c := manifestChecker{manifestDecoder: d, dir: filepath.Dir(path), env: env}
		c.check(m)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	m.UseLimits(defaultTurnLimits())
	return m, nil
}

// UseLimits sets the limits that an agent does not set to those of the settings. Without it they are the defaults.
func (m *Manifest) UseLimits(limits TurnLimits) {
	for name, agent := range m.Agents {
		agent.Limits = agent.said.Or(limits)
		m.Agents[name] = agent
	}
}

// readCapped reads a file of at most size bytes.
func readCapped(path string, size ByteSize) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // The operator names the file, in the settings or in the manifest.
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, int64(size)+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if ByteSize(len(content)) > size {
		return nil, fmt.Errorf("%s holds more than %s", path, size)
	}
	return content, nil
}
