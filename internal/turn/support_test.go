package turn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errDraining = errors.New("the partition is being drained")
	errStopped  = errors.New("the worker stops")
	errGone     = errors.New("the partition is gone")
)

// scenario is one whole turn: an agent, what a producer asks of it, and what its model and its tools answer.
type scenario struct {
	Agent agentScript
	Turn  turnScript
	Model []modelScript
	Tools map[string]toolScript
}

type agentScript struct {
	System            string   `json:"system"`
	Tools             []string `json:"tools"` // name effect idempotency
	Steps             int      `json:"steps"`
	Calls             int      `json:"calls"`
	Parallel          int      `json:"parallel"`
	Failures          int      `json:"failures"`
	Duration          string   `json:"duration"`
	ContextBytes      int      `json:"context_bytes"`
	ContinueOnUnknown bool     `json:"continue_on_unknown"`
	FailOnToolError   bool     `json:"fail_on_tool_error"`
}

type turnScript struct {
	Messages     []string        `json:"messages"`       // role text
	History      []string        `json:"history"`        // role text
	OwnHistory   bool            `json:"own_history"`    // the turn brought its own
	Tools        []string        `json:"tools,omitzero"` // the narrowing
	OutputSchema json.RawMessage `json:"output_schema"`
	Deadline     string          `json:"deadline"`
	// What happens to the turn, and when: a cancel event, the partition being drained, the worker being stopped.
	Cancel, Drain, Stop string
}

type modelScript struct {
	Text    string       `json:"text"`
	Calls   []string     `json:"calls"` // name arguments
	Finish  string       `json:"finish"`
	Cost    *int64       `json:"cost"`
	Takes   string       `json:"takes"`
	Error   schemas.Code `json:"error"`
	Message string       `json:"message"`
	Panic   string       `json:"panic"`
}

type toolScript struct {
	Status   string          `json:"status"`
	Code     schemas.Code    `json:"code"`
	Message  string          `json:"message"`
	ForModel string          `json:"for_model"`
	Output   json.RawMessage `json:"output"`
	Takes    string          `json:"takes"`
	Panic    string          `json:"panic"`
}

func (s *scenario) agent() *fact.Agent {
	a := &fact.Agent{
		Name: "support", System: s.Agent.System, Model: fact.ModelSpec{Name: "m", Provider: "scripted", Model: "m-1"},
		Limits: fact.Limits{
			Steps: or(s.Agent.Steps, 16), Calls: or(s.Agent.Calls, 64), Parallel: or(s.Agent.Parallel, 8), Failures: or(s.Agent.Failures, 3),
			Duration: or(span(s.Agent.Duration), 10*time.Minute), ContextBytes: or(s.Agent.ContextBytes, 2<<20),
		},
		ContinueOnUnknown: s.Agent.ContinueOnUnknown, FailOnToolError: s.Agent.FailOnToolError,
	}
	for _, t := range s.Agent.Tools {
		a.Tools = append(a.Tools, toolOf(t))
	}
	return a
}

func toolOf(line string) fact.Tool {
	f := strings.Fields(line)
	return fact.Tool{Name: f[0], Version: "1", Effect: schemas.Effect(f[1]), Idempotency: schemas.Idempotency(f[2]), Fingerprint: "fp-" + f[0]}
}

func (s *scenario) accepted(now time.Time) *fact.Accepted {
	a := &fact.Accepted{
		TurnID: "t1", SessionID: "s1", AgentName: "support", At: now, Messages: messagesOf(s.Turn.Messages), OwnHistory: s.Turn.OwnHistory,
		Narrowed: s.Turn.Tools != nil, Tools: s.Turn.Tools, OutputSchema: s.Turn.OutputSchema, Worker: "w0",
	}
	if s.Turn.Deadline != "" {
		a.Deadline = now.Add(span(s.Turn.Deadline))
	}
	return a
}

func messagesOf(lines []string) []fact.Message {
	var out []fact.Message
	for _, l := range lines {
		role, text, _ := strings.Cut(l, " ")
		out = append(out, fact.Message{Role: fact.Role(role), Text: text})
	}
	return out
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func span(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

// world is where a scenario's turn runs: it plays the model, the tools and the gate, and keeps a log of all that happens.
type world struct {
	scenario *scenario
	begin    time.Time
	// today changes what a recorded tool is now; it gives false for one that is not bound any more.
	today func(t *fact.Tool) bool
	// suspect is set when the last worker may have died of the turn.
	suspect Suspect

	mu         sync.Mutex
	log        []line
	draining   bool
	running    int
	mostAtOnce int
	runs       map[fact.Ref][]string // the inputs that each call ran with
	asked      map[int][]string      // the messages that each step was asked with
	onRun      func(call *fact.Call) error
}

// line is one thing that happened; ref is set for those about one call.
type line struct {
	at   time.Duration
	ref  *fact.Ref
	text string
}

func newWorld(s *scenario) *world {
	return &world{scenario: s, begin: time.Now(), runs: make(map[fact.Ref][]string), asked: make(map[int][]string)}
}

func (w *world) note(ref *fact.Ref, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, line{at: time.Since(w.begin), ref: ref, text: fmt.Sprintf(format, args...)})
}

// Permit implements Gate.
func (w *world) Permit(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return errDraining
	}
	return nil
}

func (w *world) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
}

// Respond implements Model.
func (w *world) Respond(ctx context.Context, req *fact.Request) (*fact.Response, error) {
	messages := showMessages(req.Messages)
	w.note(nil, "ask %d: %s", req.Step, messages)
	w.mu.Lock()
	w.asked[req.Step] = append(w.asked[req.Step], messages)
	w.mu.Unlock()
	if req.Step >= len(w.scenario.Model) {
		return nil, schemas.Errorf(schemas.CodeModelInvalidResponse, "the script has no step %d", req.Step)
	}
	m := w.scenario.Model[req.Step]
	if err := pause(ctx, m.Takes); err != nil {
		return nil, err
	}
	if m.Panic != "" {
		panic(m.Panic)
	}
	if m.Error != "" {
		return nil, schemas.Errorf(m.Error, "%s", m.Message)
	}
	resp := &fact.Response{
		Text: m.Text, Provider: "scripted", Model: "m-1", Usage: schemas.Usage{InputTokens: 10, OutputTokens: 2}, CostMicros: m.Cost, FinishReason: m.Finish,
	}
	for i, c := range m.Calls {
		name, args, _ := strings.Cut(c, " ")
		resp.Calls = append(resp.Calls, fact.Asked{Name: name, CallID: fmt.Sprintf("c%d.%d", req.Step, i), Arguments: []byte(args)})
	}
	if resp.FinishReason == "" {
		resp.FinishReason = schemas.FinishStop
		if len(resp.Calls) > 0 {
			resp.FinishReason = schemas.FinishToolCall
		}
	}
	return resp, nil
}

func pause(ctx context.Context, takes string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if takes == "" {
		return nil
	}
	timer := time.NewTimer(span(takes))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		select {
		case <-timer.C: // At the very end both are equally early, and what is there by then counts.
			return nil
		default:
		}
		return context.Cause(ctx)
	}
}

// offer is what the world offers a turn.
type offer struct {
	world *world
	tools []fact.Tool
}

// Offer implements Tools.
func (w *world) Offer(narrow []string, narrowed bool, recorded []fact.Tool) (Offer, error) {
	o := &offer{world: w}
	wanted := make(map[string]bool)
	for _, name := range narrow {
		wanted[name] = true
	}
	for _, t := range recorded {
		keep := !narrowed || wanted[t.Name]
		delete(wanted, t.Name)
		if !keep || w.today != nil && !w.today(&t) {
			continue
		}
		o.tools = append(o.tools, t)
	}
	for name := range wanted {
		return nil, schemas.Errorf(schemas.CodeToolRegistration, "the agent has no tool %s", name)
	}
	return o, nil
}

// Specs implements Offer.
func (o *offer) Specs() []fact.ToolSpec {
	var out []fact.ToolSpec
	for _, t := range o.tools {
		out = append(out, fact.ToolSpec{Name: t.Name})
	}
	return out
}

// Prepare implements Offer.
func (o *offer) Prepare(asked fact.Asked, ref fact.Ref) (*fact.Call, *fact.Result) {
	for _, t := range o.tools {
		if t.Name != asked.Name {
			continue
		}
		var input bytes.Buffer
		if err := json.Compact(&input, asked.Arguments); err != nil {
			return nil, &fact.Result{Ref: ref, CallID: asked.CallID, Tool: t, Status: schemas.StatusError, Code: schemas.CodeInvalidArguments, Message: "they are no JSON"}
		}
		return &fact.Call{Ref: ref, CallID: asked.CallID, Tool: t, Input: input.Bytes()}, nil
	}
	if asked.Name == "panic" {
		panic("Prepare panics")
	}
	return nil, &fact.Result{
		Ref: ref, CallID: asked.CallID, Tool: fact.Tool{Name: asked.Name}, Status: schemas.StatusError, Code: schemas.CodeUnknownTool, Message: "unknown tool '" + asked.Name + "'",
	}
}

// Execute implements Tools.
func (w *world) Execute(ctx context.Context, call *fact.Call, inv fact.Invocation) (fact.Result, error) {
	ref := call.Ref
	durable := ""
	if inv.Durable {
		durable = " durable"
	}
	w.note(&ref, "run %s %s %s%s", at(ref), call.Tool.Name, call.Input, durable)
	w.mu.Lock()
	w.runs[ref] = append(w.runs[ref], string(call.Input))
	w.running++
	w.mostAtOnce = max(w.mostAtOnce, w.running)
	onRun := w.onRun
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
	}()
	if onRun != nil {
		if err := onRun(call); err != nil {
			return fact.Result{}, err
		}
	}
	script, ok := w.scenario.Tools[at(ref)]
	if !ok {
		script = w.scenario.Tools[call.Tool.Name]
	}
	if err := pause(ctx, script.Takes); err != nil {
		w.note(&ref, "run %s gives up: %v", at(ref), err)
		return fact.Result{}, err
	}
	if script.Panic != "" {
		panic(script.Panic)
	}
	res := resultOf(&callState{call: call, started: true}, or(script.Status, schemas.StatusOK), script.Code, script.Message)
	res.Output, res.ForModel, res.Attempts = script.Output, script.ForModel, 1
	return *res, nil
}

func at(r fact.Ref) string { return fmt.Sprintf("%d/%d", r.Step, r.Position) }

// checkOutput stands for the JSON Schema check: an answer fits when it is an object with all the keys of the schema.
func checkOutput(schema, output []byte) error {
	var want, got map[string]any
	if err := json.Unmarshal(schema, &want); err != nil {
		return err
	}
	if err := json.Unmarshal(output, &got); err != nil {
		return &schemas.Error{Code: schemas.CodeInvalidOutput, Message: "it is no JSON object"}
	}
	for key := range want {
		if _, ok := got[key]; !ok {
			return &schemas.Error{Code: schemas.CodeInvalidOutput, Path: key, Message: "it is missing"}
		}
	}
	return nil
}
