package tools

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
)

// candidate is a registered tool with the manifest's settings applied, before an agent has it.
type candidate struct {
	id        fact.Tool
	modelName string
	opts      Options
	run       runner
	in        decoder
	out       plainOutput
	input     *schema
	output    *schema
	gate      string
	faults    []problem
	bound     bool
}

func newCandidate(t Tool, s Settings, limits Config) *candidate {
	opts := t.opts.merge(s)
	if opts.Version == "" {
		opts.Version = defaultVersion
	}
	c := &candidate{
		id:        fact.Tool{Name: t.name, Version: opts.Version, Effect: opts.Effect, Idempotency: idempotency(opts)},
		modelName: modelName(t.name),
		opts:      opts,
		run:       t.run,
		in:        t.in,
		out:       t.out,
		gate:      gate(t.opts, s),
	}
	c.faults = append(append(c.faults, t.faults...), check(t.name, opts, t.opts.Effect, limits)...)
	if len(t.input) > 0 {
		input, faults := compileInput(t.input)
		c.input, c.faults = input, append(c.faults, faults...)
	}
	if len(t.output) > 0 {
		output, faults := compile(t.output, "output")
		c.output, c.faults = output, append(c.faults, faults...)
	}
	if c.input != nil {
		c.id.Fingerprint = fingerprint(c.id, opts.Description, c.input.doc)
	}
	return c
}

func (c *candidate) problem(text, fix string) { c.faults = append(c.faults, problem{text, fix}) }

// fingerprint hashes what a model is told about a tool. Each part is preceded by its length, so that no two definitions run
// together; the schema is hashed in canonical form, so that white space does not count.
func fingerprint(id fact.Tool, description string, input any) string {
	h := sha256.New()
	for _, part := range [...][]byte{[]byte(id.Name), []byte(id.Version), []byte(description), appendValue(nil, input)} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// boundTool is a tool as one agent has it.
type boundTool struct {
	*candidate
	spec      fact.ToolSpec
	strip     *strip
	timeout   time.Duration
	maxResult int
	maxDepth  int
}

// bindTo fits the tool to an agent: defaults shrink to the agent's limits, the schema becomes strict if the provider wants it.
func (c *candidate) bindTo(a AgentBinding, limits Config) (*boundTool, []problem) {
	t := &boundTool{candidate: c, timeout: c.opts.Timeout, maxResult: c.opts.MaxResultBytes, maxDepth: limits.MaxDepth}
	if t.timeout == 0 {
		t.timeout = defaultTimeout
		if a.Duration > 0 {
			t.timeout = min(t.timeout, a.Duration)
		}
	}
	if t.maxResult == 0 {
		t.maxResult = min(limits.MaxResultBytes, limits.MaxRecordBytes)
	}
	if c.input == nil {
		return t, nil
	}
	t.spec = fact.ToolSpec{Name: c.modelName, Description: c.opts.Description, Input: c.input.raw}
	if !a.Strict {
		return t, nil
	}
	raw, strip, faults := makeStrict(c.input)
	t.spec.Input, t.strip = raw, strip
	return t, faults
}
