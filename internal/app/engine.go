package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/llm"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/internal/turn"
	"github.com/lathe-run/lathe/schemas"
)

// Engine is the agents of a manifest, bound to a program's tools and to their models.
type Engine struct {
	models  *llm.Router
	runtime *tools.Runtime
	agents  map[string]*boundAgent
}

// boundAgent is one agent that is ready to run turns.
type boundAgent struct {
	config *fact.Agent
	tools  *tools.Bound
	loop   *turn.Loop
}

// EngineDeps are what an engine is given beside settings, manifest and program.
type EngineDeps struct {
	Logger *slog.Logger
	// Worker names the process in facts.
	Worker string
	// Telemetry may be nil: then nothing is traced.
	Telemetry *Telemetry
	// Status takes what tools say about their progress; nil drops it.
	Status func(ctx context.Context, inv fact.Invocation, ref fact.Ref, text string)
	// Now is the clock of turns; nil is time.Now.
	Now func() time.Time
	// ModelTransport carries model requests; nil is the default.
	ModelTransport http.RoundTripper
}

// NewEngine binds everything and runs nothing. All that is wrong with the tools of all agents is one
// *tools.RegistrationError.
func NewEngine(s *Settings, m *Manifest, p Program, deps EngineDeps) (*Engine, error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	models, err := newModels(m, deps)
	if err != nil {
		return nil, fmt.Errorf("configure the models: %w", err)
	}
	runtime, err := tools.New(tools.Config{
		MaxInputBytes: int(s.Limits.InputBytes), MaxResultBytes: int(s.Limits.ResultBytes), MaxRecordBytes: int(s.Limits.RecordBytes - eventRoom),
		MaxDepth: s.Limits.JSONDepth,
	}, tools.Deps{Logger: deps.Logger.With(slog.String("component", "tools")), Program: p.Deps, Propagator: propagation.TraceContext{}, Retried: deps.Telemetry.retried("tool")})
	if err != nil {
		return nil, err
	}
	bound, err := runtime.Bind(bindings(m), p.Tools, toolSettings(m))
	if err != nil {
		return nil, err
	}
	e := &Engine{models: models, runtime: runtime, agents: make(map[string]*boundAgent, len(m.Agents))}
	for name, a := range m.Agents {
		e.agents[name] = e.bind(name, a, bound[name], deps)
	}
	return e, nil
}

func (e *Engine) bind(name string, a ManifestAgent, bound *tools.Bound, deps EngineDeps) *boundAgent {
	spec, _ := e.models.Spec(a.Model)
	config := &fact.Agent{
		Name: name, Model: spec, System: a.System, Tools: bound.Tools(), History: a.History == "session",
		Limits: fact.Limits{
			Steps: a.Limits.Steps, Calls: a.Limits.Calls, Parallel: a.Limits.Parallel, Failures: a.Limits.ConsecutiveFailures,
			Duration: a.Limits.Duration, ContextBytes: int(a.Limits.ContextBytes),
		},
		ContinueOnUnknown: a.OnUnknownOutcome == "continue", FailOnToolError: a.OnToolError == "fail",
	}
	loop := turn.New(turn.Config{Worker: deps.Worker, Now: deps.Now, CheckOutput: tools.CheckAnswer, Logger: deps.Logger},
		tracedModel{deps.Telemetry, e.models}, agentTools{bound, deps.Telemetry, deps.Status})
	return &boundAgent{config: config, tools: bound, loop: loop}
}

// checkAgents refuses agents whose configuration, which the state keeps, or whose turn:start does not fit a record.
func (e *Engine) checkAgents(codec *dedupe.Codec) error {
	var faults []error
	for _, name := range e.Agents() {
		faults = append(faults, codec.CheckAgent(e.agents[name].config))
	}
	return errors.Join(faults...)
}

// Agents are the names of the agents, sorted.
func (e *Engine) Agents() []string { return slices.Sorted(maps.Keys(e.agents)) }

// Tools are the tools of an agent as its model sees them, for the format openai, anthropic or mcp.
func (e *Engine) Tools(agent string, format tools.Format) ([]byte, error) {
	a, err := e.agent(agent)
	if err != nil {
		return nil, err
	}
	return a.tools.Describe(format)
}

// ToolCount is how many tools an agent has.
func (e *Engine) ToolCount(agent string) int { return len(e.agents[agent].config.Tools) }

// agent finds an agent by name; empty is the only one there is.
func (e *Engine) agent(name string) (*boundAgent, error) {
	if a, ok := e.agents[name]; ok {
		return a, nil
	}
	if name == "" && len(e.agents) == 1 {
		for _, a := range e.agents {
			return a, nil
		}
	}
	err := schemas.Errorf(schemas.CodeUnknownAgent, "no agent %q here; there is %s", name, strings.Join(e.Agents(), ", "))
	err.Path = "agent"
	return nil, err
}

// Close waits for tools that are still running, bounded by ctx, and lets go of connections.
func (e *Engine) Close(ctx context.Context) error {
	return errors.Join(e.models.Close(), e.runtime.Close(ctx))
}

func bindings(m *Manifest) []tools.AgentBinding {
	var out []tools.AgentBinding
	for _, name := range slices.Sorted(maps.Keys(m.Agents)) {
		a := m.Agents[name]
		out = append(out, tools.AgentBinding{
			Agent: name, Tools: a.Tools, Strict: llm.StrictSchemas(m.Models[a.Model].Provider), Duration: a.Limits.Duration,
		})
	}
	return out
}

// toolSettings are the manifest's settings of tools.
func toolSettings(m *Manifest) map[string]tools.Settings {
	out := make(map[string]tools.Settings, len(m.Tools))
	for name, t := range m.Tools {
		out[name] = tools.Settings{
			Version: nonZero(t.Version), Description: nonZero(t.Description), Effect: nonZero(t.Effect), Idempotency: nonZero(t.Idempotency),
			Timeout: nonZero(t.Timeout), ApprovalTimeout: nonZero(t.ApprovalTimeout), MaxResultBytes: nonZero(int(t.MaxResultBytes)),
			RequiresApproval: gateOf(t.RequiresApproval), Retry: retryOf(t.Retry),
		}
	}
	return out
}

func nonZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func gateOf(g ManifestGate) any {
	switch g {
	case "":
		return nil
	case ManifestGateAlways:
		return true
	}
	return string(g)
}

func retryOf(r *ManifestRetry) *tools.Retry {
	if r == nil {
		return nil
	}
	return &tools.Retry{Retries: r.Retries, Initial: r.Initial, Max: r.Max, Multiplier: r.Multiplier, Jitter: r.Jitter}
}

func newModels(m *Manifest, deps EngineDeps) (*llm.Router, error) {
	configs := make([]llm.Config, 0, len(m.Models))
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(m.Models)) {
		c, err := modelConfig(name, m.Models[name])
		if err != nil {
			faults = append(faults, err)
		}
		configs = append(configs, c)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return llm.New(configs, llm.Deps{Logger: deps.Logger.With(slog.String("component", "llm")), Transport: deps.ModelTransport, Meter: deps.Telemetry.Meter(), Retried: deps.Telemetry.retried("model")})
}

func modelConfig(name string, m ManifestModel) (llm.Config, error) {
	c := llm.Config{
		Name: name, Provider: m.Provider, Model: m.Model, BaseURL: m.BaseURL,
		Timeout: m.Timeout, Concurrency: m.Concurrency, ScriptPath: m.Script,
	}
	if key := m.APIKey; key != "" {
		c.Key = func() (string, error) { return key.Reveal(), nil }
	}
	if m.Price != nil {
		c.Price = &llm.Price{InputMicrosPerMTok: m.Price.InputMicrosPerMTok, OutputMicrosPerMTok: m.Price.OutputMicrosPerMTok, CachedMicrosPerMTok: m.Price.CachedMicrosPerMTok}
	}
	params, err := json.Marshal(m.Params)
	if err != nil {
		return c, fmt.Errorf("models.%s.params: %w", name, err)
	}
	if err := json.Unmarshal(params, &c.Params); err != nil {
		return c, fmt.Errorf("models.%s.params: %w", name, err)
	}
	return c, nil
}
