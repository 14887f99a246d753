// Package cli is the commands: what a person types, what they read in answer, and the exit status.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/tools"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	// exitRefused says that settings, manifest or tools are wrong and nothing ran.
	exitRefused = 2
)

// refusedError marks what a person has to correct before anything can run.
type refusedError struct{ err error }

func (e refusedError) Error() string { return e.err.Error() }
func (e refusedError) Unwrap() error { return e.err }

// Env is where a command runs: its streams and its environment.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Environ is the environment as os.Environ gives it.
	Environ []string
	// Options are how the run command runs a worker, save for its signals; only test programs set them.
	Options app.RunOptions
	// Careless makes the demo's refund run twice; only the demo's own test sets it, to see the demo fail.
	Careless bool
}

// OSEnv is the environment of this process.
func OSEnv() Env {
	return Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}
}

// Main runs a command and returns the exit status.
func Main(ctx context.Context, args []string, p app.Program, env Env) int {
	root := newRoot(p, env) //nolint:contextcheck // Commands take their context when they are executed.
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case isRefused(err):
		say(env.Stderr, "worker: %v\n", err)
		return exitRefused
	}
	say(env.Stderr, "worker: %v\n", err)
	return exitFailed
}

func isRefused(err error) bool {
	var registration *tools.RegistrationError
	var refused refusedError
	return errors.As(err, &registration) || errors.As(err, &refused)
}

func newRoot(p app.Program, env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "worker",
		Short: "Runs LLM-agent turns off Kafka, every event exactly once",
		Long: `Lathe is a worker that runs LLM-agent turns off Kafka. Producers put turn events on a topic; the worker runs the
model and tool loop of each turn and puts tool:start, tool:result and turn events on output topics: every event
exactly once, no tool marked at_most_once ever run twice, whatever is killed in between.

Start here:
  worker demo       see it work, on a broker of its own, with a worker killed in the middle of a refund
  worker check      see whether the settings, the manifest and the tools fit together
  worker run        run it

Settings are environment variables that start with LATHE_; "worker help settings" lists them.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          help,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return refusedError{fmt.Errorf("%w\nSee '%s --help'", err, cmd.CommandPath())}
	})
	root.AddCommand(
		newRun(p, env), newCheck(p, env), newTools(p, env), newSubmit(p, env), newTail(p, env), newVersion(p, env),
		newDLQ(env), newLeave(env), newDemo(env), newBench(p, env), newSettingsTopic(),
	)
	refuseArgs(root)
	return root
}

// refuseArgs makes arguments that a command does not take something for a person to correct, as flags are.
func refuseArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return refusedError{fmt.Errorf("%w\nSee '%s --help'", err, cmd.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		refuseArgs(sub)
	}
}

// help is what the program does without a command it knows.
func help(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	cmd.SuggestionsMinimumDistance = 2 // Cobra's default, which it sets only where it looks for suggestions itself.
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(", did you mean %q?", near[0])
	}
	return refusedError{fmt.Errorf("%s\nSee '%s --help'", text, cmd.CommandPath())}
}

// newSettingsTopic is help without a command: the table of settings.
func newSettingsTopic() *cobra.Command {
	return &cobra.Command{Use: "settings", Short: "The settings, as environment variables", Long: settingsHelp()}
}

func settingsHelp() string {
	var s strings.Builder
	say(&s, "Settings are environment variables. A name with _FILE behind it reads the value from a file.\n")
	for _, d := range app.SettingDocs() {
		if d.Section != "" {
			say(&s, "\n%s\n", d.Section)
		}
		say(&s, "  %s (%s, default %s)\n      %s\n", d.Name, d.Type, orNone(d.Default), d.Description)
	}
	return s.String()
}

// say writes to a person. When nobody can read any more there is nobody to tell.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// loadSettings reads the settings for a command that reaches brokers, or for one that does not.
func loadSettings(ctx context.Context, env Env, online bool) (*app.Settings, error) {
	load := app.LoadSettings
	if !online {
		load = app.LoadOfflineSettings
	}
	s, err := load(ctx, env.Environ, os.ReadFile)
	if err != nil {
		return nil, refusedError{fmt.Errorf("read the settings:\n%w", err)}
	}
	return s, nil
}

// loadManifest reads the manifest that the settings name.
func loadManifest(s *app.Settings, env Env) (*app.Manifest, error) {
	m, err := app.LoadManifest(s.Manifest, lookup(env.Environ))
	if err != nil {
		return nil, refusedError{fmt.Errorf("read the manifest:\n%w", err)}
	}
	m.UseLimits(s.Turn)
	return m, nil
}

// newLogger logs to stderr: as text on a terminal, as JSON elsewhere, unless the settings say which.
func newLogger(s *app.Settings, env Env) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.Level()}
	if s.LogFormat == "text" || s.LogFormat == "" && isTerminal(env.Stderr) {
		return slog.New(slog.NewTextHandler(env.Stderr, opts))
	}
	return slog.New(slog.NewJSONHandler(env.Stderr, opts))
}

// isTerminal reports whether w is a terminal, so that what is piped stays plain.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// lookup finds variables in an environment.
func lookup(environ []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, pair := range slices.Backward(environ) {
			if k, v, ok := strings.Cut(pair, "="); ok && k == name {
				return v, true
			}
		}
		return "", false
	}
}
