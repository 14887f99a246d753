package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// Scripted is a model that answers from a script or from a Go function. What it says depends on the request alone, so a turn
// that resumes in another process hears the same. It is safe for concurrent use.
type Scripted struct {
	// answer gives a response that is the request's own.
	answer func(req *fact.Request, attempt int) (*fact.Response, time.Duration, error)
	delay  time.Duration
}

// NewScripted returns a model that answers with f, which must be safe for concurrent use.
func NewScripted(f func(*fact.Request) (*fact.Response, error)) *Scripted {
	return &Scripted{answer: func(req *fact.Request, _ int) (*fact.Response, time.Duration, error) {
		resp, err := f(req)
		if resp != nil { // It may give one response to many; what is filled in is each request's own.
			own := *resp
			resp = &own
		}
		return resp, 0, err
	}}
}

// After returns the model with a wait before each answer, beside what the script has.
func (s *Scripted) After(d time.Duration) *Scripted {
	return &Scripted{answer: s.answer, delay: s.delay + d}
}

// Respond answers without the bounds and repetitions of a Router; what is wanted of the answer's other fields is filled in.
func (s *Scripted) Respond(ctx context.Context, req *fact.Request) (*fact.Response, error) {
	start := time.Now()
	resp, err := s.respond(ctx, req, 0)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, classified(err)
	}
	resp.Step, resp.Provider, resp.Duration = req.Step, ProviderScripted, time.Since(start)
	if resp.Model == "" {
		resp.Model = requestModel(req, Config{Model: ProviderScripted})
	}
	return resp, nil
}

func (s *Scripted) prepare(req *fact.Request) (send, error) {
	return func(ctx context.Context, attempt int) (*fact.Response, error) { return s.respond(ctx, req, attempt) }, nil
}

func (s *Scripted) respond(ctx context.Context, req *fact.Request, attempt int) (*fact.Response, error) {
	resp, delay, err := s.answer(req, attempt)
	if d := s.delay + delay; d > 0 {
		if err := sleep(ctx, d); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, invalidResponse("the scripted model has no answer for turn %s (step %d)", req.TurnID, req.Step)
	}
	if resp.FinishReason == "" {
		resp.FinishReason = finishOf(len(resp.Calls))
	}
	return resp, nil
}

func finishOf(calls int) string {
	if calls > 0 {
		return schemas.FinishToolCall
	}
	return schemas.FinishStop
}

// script is the scripted model that the configuration names.
func (c Config) script() (*Scripted, error) {
	if c.Scripted != nil {
		return c.Scripted, nil
	}
	if c.ScriptPath == "" {
		return nil, nil //nolint:nilnil // validate says that it is missing
	}
	s, err := LoadScript(c.ScriptPath)
	if err != nil {
		return nil, c.fault("script", err.Error())
	}
	return s, nil
}

// LoadScript reads a script from a YAML file.
func LoadScript(path string) (*Scripted, error) {
	data, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("read the script: %w", err)
	}
	return ParseScript(filepath.Base(path), data)
}

// ParseScript reads a script from YAML; name stands for it in errors.
func ParseScript(name string, data []byte) (*Scripted, error) {
	doc, err := decodeScript(data)
	if err != nil {
		return nil, fmt.Errorf("read the script %s: %w", name, err)
	}
	return doc.Compile(name)
}

// Compile returns the model that a script describes; name stands for it in errors, which list every fault.
func (s Script) Compile(name string) (*Scripted, error) {
	var faults []error
	scenarios := make([]*scenario, 0, len(s.Scenarios))
	for i := range s.Scenarios {
		sc, err := compileScenario(&s.Scenarios[i], i)
		if err != nil {
			faults = append(faults, fmt.Errorf("script %s: %w", name, err))
		}
		scenarios = append(scenarios, sc)
	}
	if len(s.Scenarios) == 0 {
		faults = append(faults, fmt.Errorf("script %s: has no scenarios", name))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	p := &player{name: name, scenarios: scenarios}
	return &Scripted{answer: p.answer}, nil
}

// player answers from a compiled script.
type player struct {
	name      string
	scenarios []*scenario
}

func (p *player) answer(req *fact.Request, attempt int) (*fact.Response, time.Duration, error) {
	v := view{req: req}
	sc := p.find(&v)
	if sc == nil {
		return nil, 0, invalidResponse("the script %s has no scenario for turn %s (step %d)", p.name, req.TurnID, req.Step)
	}
	n := req.Step
	if sc.repeat {
		n %= len(sc.answers)
	}
	if n < 0 || n >= len(sc.answers) {
		return nil, 0, invalidResponse("the script %s ran out: scenario %s has %d steps, turn %s is at step %d",
			p.name, sc.name, len(sc.answers), req.TurnID, req.Step)
	}
	a := &sc.answers[n]
	if a.fail != nil && (a.failTimes == 0 || attempt < a.failTimes) {
		return nil, a.delay, a.fail
	}
	resp, err := a.render(&v)
	if err != nil {
		return nil, 0, invalidResponse("the script %s, scenario %s, turn %s, step %d: %s", p.name, sc.name, req.TurnID, req.Step, err)
	}
	return resp, a.delay, nil
}

func (p *player) find(v *view) *scenario {
	for _, sc := range p.scenarios {
		if sc.matches(v) {
			return sc
		}
	}
	return nil
}

// scriptedFailure is the error that a script asks for: a status is classified as if a server had sent it.
func scriptedFailure(e *ScriptedError) error {
	if e.Status == 0 {
		return &schemas.Error{Code: schemas.Code(e.Code), Message: e.Message}
	}
	h := http.Header{}
	if e.RetryAfter > 0 {
		h.Set("Retry-After-Ms", strconv.FormatInt(e.RetryAfter.Milliseconds(), 10))
	}
	return Config{Name: ProviderScripted}.statusError(h, &apiError{status: e.Status, code: word(e.Code), message: e.Message})
}
