package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/tools"
)

func newCheck(p app.Program, env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check settings, manifest and tools, and run nothing",
		Long: `Reads the settings and the manifest and binds every agent's tools, and runs nothing. It needs no broker.

Exit status 0 says that a worker could start with them; 2 that something is wrong, all of it listed: an agent with a
tool that waits for approval, a name that no tool has, a schema that does not compile, a setting that is misspelt.`,
		Example: `  LATHE_MANIFEST=lathe.yaml worker check`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, m, engine, err := offlineEngine(cmd, p, env)
			if err != nil {
				return err
			}
			for _, name := range engine.Agents() {
				a := m.Agents[name]
				say(env.Stdout, "agent %s: model %s (%s %s), %d tools\n", name, a.Model, m.Models[a.Model].Provider, m.Models[a.Model].Model, engine.ToolCount(name))
			}
			say(env.Stdout, "ok: %s and the settings fit together\n", s.Manifest)
			return engine.Close(cmd.Context())
		},
	}
}

// offlineEngine binds everything without reaching a broker.
func offlineEngine(cmd *cobra.Command, p app.Program, env Env) (*app.Settings, *app.Manifest, *app.Engine, error) {
	s, err := loadSettings(cmd.Context(), env, false)
	if err != nil {
		return nil, nil, nil, err
	}
	m, err := loadManifest(s, env)
	if err != nil {
		return nil, nil, nil, err
	}
	engine, err := app.NewEngine(s, m, p, app.EngineDeps{Logger: slog.New(slog.DiscardHandler), Worker: "check", Telemetry: app.NoTelemetry()})
	if err != nil {
		return nil, nil, nil, refusedError{err}
	}
	return s, m, engine, nil
}

func newTools(p app.Program, env Env) *cobra.Command {
	var agent, format string
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "Print the tools of an agent as its model sees them",
		Long: `Prints the tools of an agent as its model sees them, as JSON in the form of a provider: names with '.' and '/' as
'_', descriptions, and schemas, made strict where the model's provider takes nothing else. It needs no broker.`,
		Example: `  worker tools --agent support --format anthropic`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, _, engine, err := offlineEngine(cmd, p, env)
			if err != nil {
				return err
			}
			b, err := engine.Tools(agent, tools.Format(format))
			if err != nil {
				return refusedError{err}
			}
			say(env.Stdout, "%s\n", b)
			return engine.Close(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "name of the agent; may be left out when there is only one")
	cmd.Flags().StringVar(&format, "format", "openai", "openai, anthropic or mcp")
	return cmd
}

func newVersion(p app.Program, env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			say(env.Stdout, "%s\n", versionText(p))
			return nil
		},
	}
}
