package tools

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Define makes a tool of a Go function. The schema of its arguments follows from In, a struct: every field is required, a pointer
// may be null, no other keys are taken; a `json` tag names a field and a `jsonschema` tag describes it to the model. The schema
// of its results follows from Out.
//
// Define does not fail: all that is wrong with all tools is reported together when they are bound.
func Define[In, Out any](name string, run func(c *Context, in In) (Out, error), opts Options) Tool {
	t := Tool{name: name, opts: opts, input: opts.Input, output: opts.Output}
	if run == nil {
		t.faults = append(t.faults, problem{"it has no function", "pass the function that does its work"})
	}
	if len(t.input) == 0 {
		input, faults := deriveInput(reflect.TypeFor[In]())
		t.input, t.faults = input, append(t.faults, faults...)
	}
	if len(t.output) == 0 {
		output, faults := deriveOutput(reflect.TypeFor[Out]())
		t.output, t.faults = output, append(t.faults, faults...)
		t.out = plainOutputOf(reflect.TypeFor[Out]())
	}
	t.in = decoder{fresh: func() any { return new(In) }, plain: plainStructOf(reflect.TypeFor[In]())}
	t.run = func(c *Context, input []byte, decoded any) (any, error) {
		in, ok := decoded.(*In)
		if !ok {
			in = new(In)
			if err := json.Unmarshal(input, in); err != nil {
				return nil, &argumentsError{fmt.Errorf("decode the arguments into %T: %w", *in, err)}
			}
		}
		return run(c, *in)
	}
	return t
}

// argumentsError says that recorded arguments no longer fit the Go type, so that nothing was run.
type argumentsError struct{ err error }

func (e *argumentsError) Error() string { return e.err.Error() }
func (e *argumentsError) Unwrap() error { return e.err }
