package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

type noInput struct{}

func testProgram() app.Program {
	run := func(*tools.Context, noInput) (string, error) { return "done", nil }
	return app.Program{Tools: []tools.Tool{
		tools.Define("look", run, tools.Options{Description: "Looks.", Effect: schemas.EffectRead}),
		tools.Define("pay", run, tools.Options{Description: "Pays.", Effect: schemas.EffectWrite, RequiresApproval: true}),
		tools.Define("wire", run, tools.Options{Description: "Wires.", Effect: schemas.EffectWrite, RequiresApproval: "args.cents > 100"}),
	}}
}

// runCommand runs a command and returns its exit status and what it printed.
func runCommand(t *testing.T, environ []string, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), args, testProgram(), Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Environ: environ})
	return code, out.String(), errs.String()
}

// writeManifest writes a manifest with one agent that has the tools, and returns the environment that names it.
func writeManifest(t *testing.T, toolNames string) []string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"lathe.yaml":  "version: 1\nagents:\n  helper: {model: main, system: Hi., tools: [" + toolNames + "]}\nmodels:\n  main: {provider: scripted, model: m, script: script.yaml}\n",
		"script.yaml": "version: 1\nscenarios:\n  - steps:\n      - text: Hello.\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"LATHE_MANIFEST=" + filepath.Join(dir, "lathe.yaml"), "LATHE_BROKERS=127.0.0.1:1", "LATHE_DATA_DIR=" + filepath.Join(dir, "data")}
}

func TestCheck_PassesWhatFits(t *testing.T) {
	t.Parallel()
	code, out, errs := runCommand(t, writeManifest(t, "look"), "", "check")
	if code != exitOK || !strings.Contains(out, "agent helper") || errs != "" {
		t.Errorf("exit status %d, stdout %q, stderr %q", code, out, errs)
	}
}

func TestCheckAndRun_RefuseGatedToolsWithEveryFaultListed(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"check", "run"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			code, _, errs := runCommand(t, writeManifest(t, "look, pay, wire, nothing"), "", command)
			if code != exitRefused {
				t.Errorf("exit status %d, want %d", code, exitRefused)
			}
			for _, want := range []string{"pay", "wire", "nothing", "person"} {
				if !strings.Contains(errs, want) {
					t.Errorf("%q is not named in:\n%s", want, errs)
				}
			}
		})
	}
}

func TestMain_RefusesWhatIsMisspelt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		environ []string
		args    []string
		want    string
	}{
		{"a setting", []string{"LATHE_BROKER=x", "LATHE_BROKERS=127.0.0.1:1"}, []string{"check"}, "LATHE_BROKERS"},
		{"a flag", nil, []string{"check", "--verbos"}, "check --help"},
		{"a format", writeManifest(t, "look"), []string{"tools", "--format", "xml"}, "openai"},
		{"an agent", writeManifest(t, "look"), []string{"tools", "--agent", "helpr"}, "helper"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			code, _, errs := runCommand(t, tc.environ, "", tc.args...)
			if code != exitRefused || !strings.Contains(errs, tc.want) {
				t.Errorf("exit status %d, stderr %q; want %d and %q", code, errs, exitRefused, tc.want)
			}
		})
	}
}

func TestTools_PrintsWhatTheModelSees(t *testing.T) {
	t.Parallel()
	code, out, errs := runCommand(t, writeManifest(t, "look"), "", "tools", "--format", "anthropic")
	if code != exitOK || !strings.Contains(out, `"input_schema"`) || !strings.Contains(out, `"look"`) {
		t.Errorf("exit status %d, stdout %q, stderr %q", code, out, errs)
	}
}

func TestHelp_TeachesEveryCommand(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "demo", "check", "submit", "tail", "dlq", "tools", "bench", "version", "settings"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			code, out, _ := runCommand(t, nil, "", "help", command)
			if code != exitOK || len(out) < 80 {
				t.Errorf("exit status %d and %d bytes of help", code, len(out))
			}
		})
	}
}

func TestSubmit_SaysWhatIsWrongWithTheEvents(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, stdin, want string }{
		{"nothing", "", "no turn event is given"},
		{"no JSON", "{", "turn event 1"},
		{"no id", `{"messages":[]}`, "turn_id"},
		{"the second", `{"turn_id":"a"} {"turn_id":1}`, "turn event 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			code, _, errs := runCommand(t, []string{"LATHE_BROKERS=127.0.0.1:1"}, tc.stdin, "submit")
			if code != exitRefused || !strings.Contains(errs, tc.want) {
				t.Errorf("exit status %d, stderr %q; want %d and %q", code, errs, exitRefused, tc.want)
			}
		})
	}
}
