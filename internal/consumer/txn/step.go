package txn

import "context"

// Hooks are called before and after each step of a cycle, on the goroutine that called Commit. Tests use them to stop a
// process at a certain point.
type Hooks struct {
	Before func(ctx context.Context, step Step)
	After  func(ctx context.Context, step Step)
}

// Step is a numbered step of the commit cycle, in order.
type Step uint8

// The steps of a cycle.
const (
	StepBegin Step = iota + 1
	StepAnnounce
	StepProduce
	StepFlush
	StepOffsets
	StepCheck
	StepEnd
	StepAbort
	StepReplace
	StepResolve
)

// String returns the step's name.
func (s Step) String() string {
	switch s {
	case StepBegin:
		return "begin"
	case StepAnnounce:
		return "announce"
	case StepProduce:
		return "produce"
	case StepFlush:
		return "flush"
	case StepOffsets:
		return "offsets"
	case StepCheck:
		return "check"
	case StepEnd:
		return "end"
	case StepAbort:
		return "abort"
	case StepReplace:
		return "replace"
	case StepResolve:
		return "resolve"
	}
	return "unknown"
}

func (h Hooks) before(ctx context.Context, s Step) {
	if h.Before != nil {
		h.Before(ctx, s)
	}
}

func (h Hooks) after(ctx context.Context, s Step) {
	if h.After != nil {
		h.After(ctx, s)
	}
}
