package app

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestManifest_FaultsNameLineAndPath(t *testing.T) {
	t.Parallel()
	const models = "models: {m: {provider: scripted, script: s.yaml}}\n"
	agent := func(text string) string {
		return "version: 1\n" + models + "agents:\n  a:\n    model: m\n    " + text + "\n"
	}
	model := func(text string) string { return "version: 1\nagents: {a: {model: m}}\nmodels:\n  m: {" + text + "}\n" }
	tool := func(text string) string { return minimal + "tools:\n  t: {" + text + "}\n" }
	for _, tc := range []struct{ name, text, fault string }{
		{"nothing", "", "lathe.yaml: is empty; a manifest starts with version: 1"},
		{"only a comment", "# hello\n", "lathe.yaml: is empty; a manifest starts with version: 1"},
		{"no mapping", "- 1\n", "lathe.yaml: wants a mapping, not a list"},
		{"no YAML", "version: 1\nagents: {a: [}\n", "lathe.yaml:2: could not find '{' character corresponding to '}'"},
		{"two documents", minimal + "---\n" + minimal, "lathe.yaml: holds several YAML documents; a manifest is one"},
		{"a key twice", "version: 1\nversion: 1\n", `lathe.yaml:2: mapping key "version" already defined at [1:1]`},
		{"no version", minimal[len("version: 1\n"):], "lathe.yaml: version: is required: version of this format: 1"},
		{"another version", strings.Replace(minimal, "1", "2", 1), "lathe.yaml:1: version: 2 is more than 1"},
		{"a version as text", strings.Replace(minimal, "1", `"1"`, 1), "lathe.yaml:1: version: wants a whole number, not text (1)"},
		{
			"no agents", "version: 1\nagents: {}\n" + models,
			"lathe.yaml:2: agents: is empty: the agents by name; a turn names one of them, and need not if there is only one",
		},
		{"an agent without anything", "version: 1\nagents:\n  a:\n" + models, "lathe.yaml:3: agents.a.model: is required: a name under models"},
		{
			"a bad name of an agent", strings.Replace(minimal, "  a:", "  a b:", 1),
			`lathe.yaml:3: agents["a b"]: "a b" is not a name that is allowed here: it must match ^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`,
		},
		{"an unknown key", agent("sysem: x"), "lathe.yaml:6: agents.a.sysem: unknown key; the nearest is system"},
		{"a key like none", agent("xyzzyxyzzy: 1"), "lathe.yaml:6: agents.a.xyzzyxyzzy: unknown key; " +
			"the keys here are model, system, system_file, tools, history, limits, on_unknown_outcome, on_tool_error"},
		{
			"an unknown model", strings.Replace(minimal, "model: m", "model: n", 1),
			`lathe.yaml:3: agents.a.model: there is no model "n" under models`,
		},
		{
			"a misspelt model", strings.ReplaceAll(strings.Replace(minimal, "model: m", "model: mian", 1), "  m:", "  main:"),
			`lathe.yaml:3: agents.a.model: there is no model "mian"; the nearest is main`,
		},
		{"an item of the wrong type", agent("tools:\n      - x\n      - 7"), "lathe.yaml:8: agents.a.tools[1]: wants text, not a whole number (7)"},
		{"an empty item", agent("tools:\n      - x\n      -"), "lathe.yaml:8: agents.a.tools[1]: is empty"},
		{"an item twice", agent("tools: [x, y, x]"), "lathe.yaml:6: agents.a.tools[2]: x stands here twice"},
		{"no name of a tool", agent("tools: [\"a b\"]"), `lathe.yaml:6: agents.a.tools[0]: "a b" is neither the name of a tool nor one with *`},
		{"tools that are no list", agent("tools: x"), "lathe.yaml:6: agents.a.tools: wants a list, not text"},
		{"no choice", agent("history: all"), `lathe.yaml:6: agents.a.history: "all" is not one of session, none`},
		{"a limit of nothing", agent("limits: {steps: 0}"), "lathe.yaml:6: agents.a.limits.steps: 0 is less than 1"},
		{
			"a duration without a unit", agent("limits: {duration: 10}"),
			"lathe.yaml:6: agents.a.limits.duration: wants a duration such as 500ms, 30s, 10m or 15d, not a whole number (10)",
		},
		{
			"a size in thousands", agent("limits: {context_bytes: 2MB}"),
			"lathe.yaml:6: agents.a.limits.context_bytes: wants a size such as 512KiB, 1MiB or 2GiB, or a number of bytes, not text (2MB)",
		},
		{
			"both system and its file", agent("system: x\n    system_file: s.yaml"),
			"lathe.yaml:7: agents.a.system_file: cannot be used with system: keep one",
		},
		{
			"no system file", agent("system_file: none.txt"),
			"lathe.yaml:6: agents.a.system_file: open none.txt: no such file or directory",
		},
		{
			"a variable where none is read", model("provider: openai, model: \"${MODEL}\", base_url: \"http://x\""),
			"lathe.yaml:4: models.m.model: ${NAME} is not read from the environment here",
		},
		{"no provider", model("model: x"), "lathe.yaml:4: models.m.provider: is required: whose API it speaks. openai is the Chat " +
			"Completions API, which most servers offer (vLLM, Ollama, Mistral). scripted answers from a file, for tests and demos"},
		{
			"an unknown provider", model("provider: opneai, model: x"),
			`lathe.yaml:4: models.m.provider: "opneai" is not one of openai, anthropic, scripted`,
		},
		{
			"no model of the provider", model("provider: openai, api_key_env: OPENAI_API_KEY"),
			"lathe.yaml:4: models.m.model: is required by the provider openai",
		},
		{"no key", model("provider: anthropic, model: x"), "lathe.yaml:4: models.m.api_key_env: is required, or api_key_file, " +
			"unless base_url names a server that needs none"},
		{
			"a key that is not set", model("provider: openai, model: x, api_key_env: EMPTY"),
			"lathe.yaml:4: models.m.api_key_env: the environment variable EMPTY is not set",
		},
		{
			"a key instead of its name", model("provider: openai, model: x, api_key_env: sk-hunter2"),
			"lathe.yaml:4: models.m.api_key_env: must be the name of an environment variable, not the key",
		},
		{
			"two keys", model("provider: openai, model: x, api_key_env: OPENAI_API_KEY, api_key_file: s.yaml"),
			"lathe.yaml:4: models.m.api_key_file: cannot be used with api_key_env: keep one",
		},
		{
			"an empty key file", model("provider: openai, model: x, api_key_file: s.yaml"),
			"lathe.yaml:4: models.m.api_key_file: s.yaml is empty",
		},
		{
			"a URL with a password", model("provider: openai, model: x, base_url: \"https://me:hunter2@x\""),
			"lathe.yaml:4: models.m.base_url: must be an http or https URL without user and password",
		},
		{
			"a URL without a scheme", model("provider: openai, model: x, base_url: \"localhost:11434\""),
			"lathe.yaml:4: models.m.base_url: must be an http or https URL without user and password",
		},
		{
			"a script for a real model", model("provider: openai, model: x, api_key_env: OPENAI_API_KEY, script: s.yaml"),
			"lathe.yaml:4: models.m.script: is for the provider scripted",
		},
		{"no script", model("provider: scripted"), "lathe.yaml:4: models.m.script: is required by the provider scripted"},
		{
			"a script that is not there", model("provider: scripted, script: t.yaml"),
			"lathe.yaml:4: models.m.script: stat t.yaml: no such file or directory",
		},
		{
			"a key for a script", model("provider: scripted, script: s.yaml, api_key_env: EMPTY"),
			"lathe.yaml:4: models.m.api_key_env: has no meaning for the provider scripted",
		},
		{
			"a parameter out of range", model("provider: scripted, script: s.yaml, params: {temperature: 3}"),
			"lathe.yaml:4: models.m.params.temperature: 3 is more than 2",
		},
		{
			"a parameter that is no number", model("provider: scripted, script: s.yaml, params: {top_p: .nan}"),
			"lathe.yaml:4: models.m.params.top_p: wants a number, not an infinite or no number",
		},
		{
			"a negative price", model("provider: scripted, script: s.yaml, price: {input_micros_per_mtok: -1}"),
			"lathe.yaml:4: models.m.price.input_micros_per_mtok: -1 is less than 0",
		},
		{
			"a bad name of a tool", strings.Replace(tool("retry: 1"), "  t:", "  9t:", 1),
			`lathe.yaml:7: tools.9t: "9t" is not a name that is allowed here: it must match ^[A-Za-z][A-Za-z0-9._/-]{0,127}$`,
		},
		{
			"a name with a dot", strings.Replace(tool("retrys: 1"), "  t:", "  crm.find:", 1),
			`lathe.yaml:7: tools["crm.find"].retrys: unknown key; the nearest is retry`,
		},
		{
			"too long a version", tool("version: " + strings.Repeat("v", 129)),
			"lathe.yaml:7: tools.t.version: has 129 characters, more than 128",
		},
		{"a version as a number", tool("version: 2"), "lathe.yaml:7: tools.t.version: wants text, not a whole number (2)"},
		{"negative retries", tool("retry: -1"), "lathe.yaml:7: tools.t.retry: -1 is less than 0"},
		{
			"a policy without retries", tool("retry: {max: 1s}"),
			"lathe.yaml:7: tools.t.retry.retries: is required: how often, after the first attempt",
		},
		{
			"an empty condition", tool(`requires_approval: ""`),
			"lathe.yaml:7: tools.t.requires_approval: wants true, false or a condition, not text ()",
		},
		{"a YAML tag", tool("timeout: !!str 5s"), "lathe.yaml:7: tools.t.timeout: YAML tags (!!str) have no meaning here"},
		{"a merge key", minimal + "tools:\n  t: &t {retry: 1}\n  u:\n    <<: *t\n", "lathe.yaml:9: tools.u: merge keys (<<) are not supported"},
		{"an alias of nothing", tool("retry: *r"), "lathe.yaml:7: tools.t.retry: there is no anchor &r"},
		{"an alias of itself", tool("retry: &r {retries: *r}"), "lathe.yaml:7: tools.t.retry.retries: wants a whole number, not a mapping"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m, err := manifestOf(t, tc.text, map[string]string{"s.yaml": ""})
			if got := errText(err); got != tc.fault || m != nil {
				t.Errorf("manifest %v, fault %q\nwant %q", m, got, tc.fault)
			}
			if strings.Contains(errText(err), "hunter2") {
				t.Error("the fault shows a secret")
			}
		})
	}
}

func TestManifest_ReportsAllFaultsAtOnceInOrder(t *testing.T) {
	t.Parallel()
	_, err := manifestOf(t, `version: 1
agents:
  a:
    moddel: m
    tools: [x, 1]
  b: {model: m, limits: {steps: many}}
models:
  m: {provider: openai, model: x, api_key_env: NONE}
tool: {}
`, nil)
	want := []string{
		"lathe.yaml:3: agents.a.model: is required: a name under models",
		"lathe.yaml:4: agents.a.moddel: unknown key; the nearest is model",
		"lathe.yaml:5: agents.a.tools[1]: wants text, not a whole number (1)",
		"lathe.yaml:6: agents.b.limits.steps: wants a whole number, not text (many)",
		"lathe.yaml:8: models.m.api_key_env: the environment variable NONE is not set",
		"lathe.yaml:9: tool: unknown key; the nearest is tools",
	}
	if diff := cmp.Diff(want, strings.Split(errText(err), "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestManifest_FaultsAreManifestErrors(t *testing.T) {
	t.Parallel()
	_, err := parseManifest("x.yaml", []byte(minimal), testVariables)
	var fault *ManifestError
	if !errors.As(err, &fault) || fault.File != "x.yaml" || fault.Line != 5 || fault.Path != "models.m.script" {
		t.Errorf("fault = %#v (%v)", fault, err)
	}
	if _, err := LoadManifest(filepath.Join(t.TempDir(), "none.yaml"), testVariables); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a manifest that is not there: %v", err)
	}
	path := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(path, bytes.Repeat([]byte("#"), int(maxManifest)+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadManifest(path, testVariables); err == nil || !strings.HasSuffix(err.Error(), "big.yaml holds more than 4MiB") {
		t.Errorf("a manifest that is too large: %v", err)
	}
}

func TestManifest_RefusesWhatComesLaterByName(t *testing.T) {
	t.Parallel()
	in := func(where, text string) string {
		switch where {
		case "agent":
			return strings.Replace(minimal, "{model: m}", "{model: m, "+text+"}", 1)
		case "tool":
			return minimal + "tools: {t: {" + text + "}}\n"
		}
		return minimal + text + "\n"
	}
	for _, tc := range []struct{ where, text, fault string }{
		{"", "mcp_servers: {crm: {command: [x], env: {T: \"${T}\"}}}", "lathe.yaml:6: mcp_servers: mcp_servers is not supported yet by this release"},
		{"agent", "permissions: [a]", "lathe.yaml:3: agents.a.permissions: permissions is not supported yet by this release"},
		{"agent", "permissions: []", "lathe.yaml:3: agents.a.permissions: permissions is not supported yet by this release"},
		{"agent", "budget: {tokens: 1}", "lathe.yaml:3: agents.a.budget: budget is not supported yet by this release"},
		{"agent", "policy: {default: allow}", "lathe.yaml:3: agents.a.policy: policy is not supported yet by this release"},
		{"agent", "enabled_groups: [x]", "lathe.yaml:3: agents.a.enabled_groups: enabled_groups is not supported yet by this release (tool groups)"},
		{"tool", "disabled: true", "lathe.yaml:6: tools.t.disabled: disabled is not supported yet by this release"},
		{"tool", "url: x", "lathe.yaml:6: tools.t.url: url is not supported yet by this release (HTTP tools)"},
		{"tool", "method: GET", "lathe.yaml:6: tools.t.method: method is not supported yet by this release (HTTP tools)"},
		{"tool", "cost_micros: 1", "lathe.yaml:6: tools.t.cost_micros: cost_micros is not supported yet by this release (budgets)"},
		{"tool", "guards: []", "lathe.yaml:6: tools.t.guards: guards is not supported yet by this release"},
		{"tool", "cache_ttl: 1m", "lathe.yaml:6: tools.t.cache_ttl: cache_ttl is not supported yet by this release (result caches)"},
		{"tool", "capabilities: [x]", "lathe.yaml:6: tools.t.capabilities: capabilities is not supported yet by this release (permissions)"},
		{"agent", "permissions: null", ""},
		{"tool", "disabled: false", ""},
		{"tool", "cache_ttl: null", ""},
	} {
		t.Run(tc.text, func(t *testing.T) {
			t.Parallel()
			_, err := manifestOf(t, in(tc.where, tc.text), map[string]string{"s.yaml": ""})
			if got := errText(err); got != tc.fault {
				t.Errorf("fault = %q\nwant    %q", got, tc.fault)
			}
		})
	}
}
