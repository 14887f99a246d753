package lathe_test

import (
	"fmt"

	"github.com/lathe-run/lathe"
)

type greetInput struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

func greet(_ *lathe.Context, in greetInput) (string, error) {
	return "hello " + in.Name, nil
}

// A program is its tools and what they need; lathe.Main gives it every command of the worker.
func Example() {
	program := lathe.Program{
		Tools: []lathe.Tool{
			lathe.Define("greet", greet, lathe.ToolOptions{Description: "Greets someone.", Effect: lathe.None}),
		},
		Version: "greeter 1.0",
	}
	// In main: lathe.Main(program)
	fmt.Println(program.Tools[0].Name(), "in", program.Version)
	// Output: greet in greeter 1.0
}
