package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// manifestOf loads a manifest from text, beside the given files.
func manifestOf(t *testing.T, text string, files map[string]string) (*Manifest, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "lathe.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := LoadManifest(path, testVariables)
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
	}
	return m, err
}

func testVariables(name string) (string, bool) {
	value, ok := map[string]string{"OPENAI_API_KEY": "hunter2", "ANTHROPIC_API_KEY": "hunter3", "EMPTY": ""}[name]
	return value, ok
}

func TestManifest_ExampleOfItsPageLoads(t *testing.T) {
	t.Parallel()
	m, err := manifestOf(t, string(manifestExample(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	zero, low := 0.0, 0.2
	cached, most, more := int64(25000), int64(2048), int64(4096)
	want := &Manifest{
		Version: 1,
		Agents: map[string]ManifestAgent{
			"support": {
				Model:  "main",
				System: "You answer questions about orders. Look an order up before you say anything about it.\n",
				Tools:  []string{"lookup_order", "refund", "crm_*"}, History: "session",
				Limits: TurnLimits{
					Steps: 12, Calls: 40, Parallel: 4, ConsecutiveFailures: 2, Duration: 5 * time.Minute, ContextBytes: MiB,
				},
				OnUnknownOutcome: "end", OnToolError: "continue",
			},
			"triage": {
				Model: "local", System: "Say which team a message is for, in one word.", Tools: []string{}, History: "none",
				Limits: defaultTurnLimits(), OnUnknownOutcome: "end", OnToolError: "continue",
			},
		},
		Models: map[string]ManifestModel{
			"main": {
				Provider: "openai", Model: "gpt-5-mini", APIKeyEnv: "OPENAI_API_KEY", APIKey: "hunter2",
				Params:  ManifestParams{Temperature: &low, MaxOutputTokens: &most},
				Timeout: 2 * time.Minute, Concurrency: 32,
				Price: &ManifestPrice{InputMicrosPerMTok: 250000, OutputMicrosPerMTok: 2000000, CachedMicrosPerMTok: &cached},
			},
			"local": {
				Provider: "openai", Model: "qwen3:8b", BaseURL: "http://localhost:11434/v1",
				Params: ManifestParams{Temperature: &zero, Stop: []string{"\n"}}, Timeout: 2 * time.Minute, Concurrency: 32,
			},
			"careful": {
				Provider: "anthropic", Model: "claude-sonnet-4-5", APIKeyEnv: "ANTHROPIC_API_KEY", APIKey: "hunter3",
				Params: ManifestParams{MaxOutputTokens: &more}, Timeout: 2 * time.Minute, Concurrency: 32,
			},
		},
		Tools: map[string]ManifestTool{
			"lookup_order": {Retry: &ManifestRetry{Retries: 2}, Timeout: 5 * time.Second},
			"refund":       {Version: "2", Idempotency: "at_most_once", Timeout: 20 * time.Second, MaxResultBytes: 16 * KiB},
			"crm_search": {Retry: &ManifestRetry{
				Retries: 3, Initial: 200 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.2,
			}},
		},
	}
	if diff := cmp.Diff(want, m, cmpopts.IgnoreUnexported(Manifest{}, ManifestAgent{}, ManifestTool{})); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
}

// The limits of the settings fill in for an agent, and do not touch what it sets itself, however often they are applied.
func TestManifest_SettingsFillInLimits(t *testing.T) {
	t.Parallel()
	m, err := manifestOf(t, string(manifestExample(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	limits := TurnLimits{Steps: 3, Calls: 3, Parallel: 3, ConsecutiveFailures: 3, Duration: 3, ContextBytes: 3}
	m.UseLimits(defaultTurnLimits())
	m.UseLimits(limits)
	if got := m.Agents["triage"].Limits; got != limits {
		t.Errorf("limits of an agent without any = %+v", got)
	}
	if got := m.Agents["support"].Limits; got.Steps != 12 || got.ContextBytes != MiB {
		t.Errorf("limits of an agent with its own = %+v", got)
	}
	if got, want := defaultTurnLimits(), settingsOf(t).Turn; got != want {
		t.Errorf("defaults of the manifest %+v differ from those of the settings %+v", got, want)
	}
}

const minimal = "version: 1\nagents:\n  a: {model: m}\nmodels:\n  m: {provider: scripted, script: s.yaml}\n"

func TestManifest_ReadsFilesBesideIt(t *testing.T) {
	t.Parallel()
	m, err := manifestOf(t, `
version: 1
agents: {a: {model: m, system_file: prompt.txt}}
models:
  m: {provider: scripted, script: s.yaml}
  k: {provider: openai, model: x, api_key_file: key}
`, map[string]string{"prompt.txt": "Be ${kind}.\n", "s.yaml": "", "key": "hunter2\n"})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Agents["a"].System; got != "Be ${kind}.\n" {
		t.Errorf("system = %q", got)
	}
	if got := m.Models["k"]; got.APIKey.Reveal() != "hunter2" || !filepath.IsAbs(got.APIKeyFile) {
		t.Errorf("model with a key = %+v", got)
	}
	if got := m.Models["m"]; filepath.Base(got.Script) != "s.yaml" || !filepath.IsAbs(got.Script) || got.Model != "scripted" || got.Timeout != 0 || got.Concurrency != 0 {
		t.Errorf("scripted model = %+v", got)
	}
}

func TestManifest_KeepsGatesForTheBinding(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		value string
		want  ManifestGate
	}{{"true", ManifestGateAlways}, {"false", ""}, {"null", ""}, {`"args.amount > 100"`, "args.amount > 100"}, {`"true"`, ManifestGateAlways}} {
		t.Run(tc.value, func(t *testing.T) {
			t.Parallel()
			m, err := manifestOf(t, minimal+"tools: {t: {requires_approval: "+tc.value+", approval_timeout: 1h}}\n",
				map[string]string{"s.yaml": ""})
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Tools["t"]; got.RequiresApproval != tc.want || got.ApprovalTimeout != time.Hour {
				t.Errorf("tool = %+v", got)
			}
		})
	}
}

func TestManifest_AliasesStandForTheirAnchors(t *testing.T) {
	t.Parallel()
	m, err := manifestOf(t, minimal+`tools:
  t: {retry: &r {retries: 2}}
  u: {retry: *r}
  v: &v {timeout: &five 5s}
  w: *v
  x: {timeout: *five}
`, map[string]string{"s.yaml": ""})
	if err != nil {
		t.Fatal(err)
	}
	if m.Tools["u"].Retry.Retries != 2 || m.Tools["w"].Timeout != 5*time.Second || m.Tools["x"].Timeout != 5*time.Second {
		t.Errorf("tools = %+v", m.Tools)
	}
}

func TestManifest_NeverShowsAnAPIKey(t *testing.T) {
	t.Parallel()
	m, err := manifestOf(t, string(manifestExample(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(m) //nolint:musttag // Nobody writes it as JSON; that must not show a key either.
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{fmt.Sprintf("%v %+v %#v", *m, m.Models, m.Models), string(asJSON)} {
		if strings.Contains(printed, "hunter") || !strings.Contains(printed, redacted) {
			t.Errorf("printed as %s", printed)
		}
	}
}

func FuzzManifest_NeverPanics(f *testing.F) {
	f.Add(manifestExample(f))
	f.Add([]byte(minimal))
	f.Add([]byte("version: 1\nagents: &a {a: *a}\ntools: {t: {retry: !!int 1}}\n? x\n: y\n"))
	f.Add([]byte("- <<: *x\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := parseManifest("lathe.yaml", content, testVariables)
		if (m == nil) == (err == nil) {
			t.Fatalf("manifest %v, error %v", m, err)
		}
	})
}
