// Package app is the worker process: it reads the settings and the manifest, binds tools to agents, wires the packages that
// do the work, and watches over them with probes, metrics and traces.
package app

import (
	"github.com/lathe-run/lathe/internal/tools"
)

// Program is what a user's program brings: its tools in Go, and what they need.
type Program struct {
	// Tools are the program's own tools; agents name them in the manifest.
	Tools []tools.Tool
	// Deps is what tools get at with tools.From: database handles, clients. May be nil.
	Deps any
	// Version names the program's build; it is logged and shown by the version command.
	Version string
}
