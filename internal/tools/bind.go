package tools

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// AgentBinding says which tools an agent is to have.
type AgentBinding struct {
	Agent string
	// Tools are names, or patterns in which * stands for any characters and ? for one.
	Tools []string
	// Strict is set when the agent's model provider takes strict schemas only.
	Strict bool
	// Duration is the agent's limit for a turn; no tool may take longer. 0 means no limit.
	Duration time.Duration
}

// Bind ties the registered tools to the agents. If anything is wrong, the error is a *RegistrationError that lists all of it, and
// nothing is bound.
func (r *Runtime) Bind(agents []AgentBinding, registered []Tool, settings map[string]Settings) (map[string]*Bound, error) {
	b := &binder{runtime: r, byName: map[string]*candidate{}}
	for _, t := range registered {
		b.register(t, settings[t.name])
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if b.byName[name] == nil {
			b.fault("", name, "the manifest has settings for it, but there is no such tool", "correct the name"+b.nearest(name))
		}
	}
	bound := make(map[string]*Bound, len(agents))
	for _, a := range agents {
		if bound[a.Agent] != nil {
			b.fault(a.Agent, "*", "the agent is bound twice", "bind it once")
			continue
		}
		bound[a.Agent] = b.bind(a)
	}
	for _, c := range b.candidates {
		if !c.bound {
			b.faultsOf("", c)
		}
	}
	if len(b.faults) > 0 {
		return nil, newRegistrationError(b.faults)
	}
	return bound, nil
}

type binder struct {
	runtime    *Runtime
	candidates []*candidate
	byName     map[string]*candidate
	faults     []Fault
}

func (b *binder) fault(agent, tool, text, fix string) {
	b.faults = append(b.faults, Fault{Agent: agent, Tool: tool, Problem: text, Fix: fix})
}

func (b *binder) faultsOf(agent string, c *candidate) {
	for _, f := range c.faults {
		b.fault(agent, c.id.Name, f.text, f.fix)
	}
}

func (b *binder) register(t Tool, s Settings) {
	if b.byName[t.name] != nil {
		b.byName[t.name].problem("it is registered twice", "give each tool a name of its own")
		return
	}
	c := newCandidate(t, s, b.runtime.cfg)
	b.byName[t.name] = c
	b.candidates = append(b.candidates, c)
}

func (b *binder) bind(a AgentBinding) *Bound {
	bound := &Bound{
		runtime: b.runtime,
		agent:   a.Agent,
		byName:  map[string]*boundTool{},
		byModel: map[string]*boundTool{},
		known:   b.byName,
	}
	for _, c := range b.selected(a) {
		c.bound = true
		b.faultsOf(a.Agent, c)
		if c.gate != "" {
			b.fault(a.Agent, c.id.Name, "it waits for a person ("+c.gate+"), which a worker on Kafka cannot do",
				"remove the gate, or take the tool from the agent")
		}
		if a.Duration > 0 && c.opts.Timeout > a.Duration {
			b.fault(a.Agent, c.id.Name, fmt.Sprintf("its timeout of %s is above the turn's %s", c.opts.Timeout, a.Duration),
				"lower it, or raise limits.duration of the agent")
		}
		t, strict := c.bindTo(a, b.runtime.cfg)
		for _, f := range strict {
			b.fault(a.Agent, c.id.Name, f.text, f.fix)
		}
		if other := bound.byModel[c.modelName]; other != nil {
			b.fault(a.Agent, c.id.Name, fmt.Sprintf("a model sees it as %s, and %s too", c.modelName, other.id.Name), "rename one of them")
		}
		bound.add(t)
	}
	return bound
}

// selected are the tools that an agent names, in the order of its list and then of their registration.
func (b *binder) selected(a AgentBinding) []*candidate {
	var list []*candidate
	taken, listed := map[*candidate]bool{}, map[string]bool{}
	for _, pattern := range a.Tools {
		if listed[pattern] {
			b.fault(a.Agent, pattern, "the agent lists it twice", "list it once")
			continue
		}
		listed[pattern] = true
		found := false
		for _, c := range b.candidates {
			if !match(pattern, c.id.Name) {
				continue
			}
			found = true
			if !taken[c] {
				taken[c] = true
				list = append(list, c)
			}
		}
		switch {
		case found:
		case strings.ContainsAny(pattern, "*?"):
			b.fault(a.Agent, pattern, "no tool fits the pattern", "correct it, or register a tool that fits")
		default:
			b.fault(a.Agent, pattern, "there is no such tool", "register it, or correct the name"+b.nearest(pattern))
		}
	}
	return list
}

// nearest suggests the registered name that is closest to a wrong one.
func (b *binder) nearest(name string) string {
	names := make([]string, len(b.candidates))
	for i, c := range b.candidates {
		names[i] = c.id.Name
	}
	if best := Nearest(name, names); best != "" {
		return " (did you mean " + best + "?)"
	}
	return ""
}

// match reports whether a name fits a pattern of *, ? and plain characters.
func match(pattern, name string) bool {
	p, n := 0, 0
	star, mark := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
