package tools

import (
	"fmt"
	"strings"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

const maxNamesListed = 20

// Bound is the tools of one agent. It does not change, and is safe for concurrent use.
type Bound struct {
	runtime *Runtime
	agent   string
	tools   []*boundTool
	byName  map[string]*boundTool
	byModel map[string]*boundTool
	ids     []fact.Tool
	specs   []fact.ToolSpec
	// known are all tools of the program, to say why one is not here.
	known map[string]*candidate
}

func (b *Bound) add(t *boundTool) {
	b.tools = append(b.tools, t)
	b.ids = append(b.ids, t.id)
	b.specs = append(b.specs, t.spec)
	b.byName[t.id.Name] = t
	b.byModel[t.modelName] = t
}

// Tools are the agent's tools in the order they are offered. Not to be changed.
func (b *Bound) Tools() []fact.Tool { return b.ids }

// Find returns the agent's tool of a name as it is now, to compare with a recorded one.
func (b *Bound) Find(name string) (fact.Tool, bool) {
	t := b.byName[name]
	if t == nil {
		return fact.Tool{}, false
	}
	return t.id, true
}

// Offer returns the tools that a turn is offered, as the model sees them and as they are. The slices are not to be changed.
//
// A narrowed turn is offered only those of its list; one that names a tool the agent does not have gives an error of code
// tool_registration. If recorded is not nil, the turn has begun: it is offered those of its recorded tools that are still bound,
// as they are now.
func (b *Bound) Offer(narrow []string, narrowed bool, recorded []fact.Tool) ([]fact.ToolSpec, []fact.Tool, error) {
	if narrowed {
		if err := b.missing(narrow, recorded); err != nil {
			return nil, nil, err
		}
	}
	if !narrowed && (recorded == nil || b.same(recorded)) {
		return b.specs, b.ids, nil
	}
	wanted := nameSet(narrow)
	past := make(map[string]bool, len(recorded))
	for _, t := range recorded {
		past[t.Name] = true
	}
	specs, ids := make([]fact.ToolSpec, 0, len(b.tools)), make([]fact.Tool, 0, len(b.tools))
	for i, t := range b.tools {
		if narrowed && !wanted[t.id.Name] || recorded != nil && !past[t.id.Name] {
			continue
		}
		specs, ids = append(specs, b.specs[i]), append(ids, b.ids[i])
	}
	return specs, ids, nil
}

// same reports whether the recorded tools are the ones that are bound, which is so unless a deployment came in between.
func (b *Bound) same(recorded []fact.Tool) bool {
	if len(recorded) != len(b.ids) {
		return false
	}
	for i := range recorded {
		if recorded[i].Name != b.ids[i].Name {
			return false
		}
	}
	return true
}

// missing refuses a narrowing that names what the agent does not have. A tool that the turn had when it began and that is gone
// since is only not offered any more.
func (b *Bound) missing(narrow []string, recorded []fact.Tool) error {
	var lacks []string
	for _, name := range narrow {
		if b.byName[name] != nil {
			continue
		}
		gone := false
		for _, t := range recorded {
			gone = gone || t.Name == name
		}
		if !gone && len(lacks) < maxNamesListed {
			lacks = append(lacks, b.why(name))
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return schemas.Errorf(schemas.CodeToolRegistration, "agent %s does not have %s", b.agent, strings.Join(lacks, ", "))
}

func (b *Bound) why(name string) string {
	c := b.known[name]
	switch {
	case c == nil:
		return fmt.Sprintf("tool %s (there is no such tool)", cut(name, maxModelName))
	case c.gate != "":
		return fmt.Sprintf("tool %s (it waits for a person: %s)", name, c.gate)
	}
	return fmt.Sprintf("tool %s (it is not bound to the agent)", name)
}

func nameSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}
