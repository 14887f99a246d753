package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// problem is what is wrong with a tool, and what to do about it.
type problem struct{ text, fix string }

// Fault is one thing that is wrong with a registration.
type Fault struct {
	// Agent is empty when the fault is not one agent's: a tool that none binds, or settings for a tool that does not exist.
	Agent   string
	Tool    string
	Problem string
	Fix     string
}

// String is the fault in one line.
func (f Fault) String() string {
	var b strings.Builder
	if f.Agent != "" {
		fmt.Fprintf(&b, "agent %s, ", f.Agent)
	}
	fmt.Fprintf(&b, "tool %s: %s; fix: %s", cut(f.Tool, maxName), f.Problem, f.Fix)
	return b.String()
}

// RegistrationError lists everything that is wrong with the tools of a worker.
type RegistrationError struct{ Faults []Fault }

// Error lists all faults, a line each.
func (e *RegistrationError) Error() string {
	var b strings.Builder
	if len(e.Faults) == 1 {
		b.WriteString("1 fault in the registration of tools:")
	} else {
		fmt.Fprintf(&b, "%d faults in the registration of tools:", len(e.Faults))
	}
	for _, f := range e.Faults {
		b.WriteString("\n  ")
		b.WriteString(f.String())
	}
	return b.String()
}

func newRegistrationError(faults []Fault) *RegistrationError {
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Problem, b.Problem))
	})
	return &RegistrationError{Faults: slices.Compact(faults)}
}
