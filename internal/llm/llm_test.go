package llm

import (
	"os"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

func TestNew_ListsEveryFault(t *testing.T) {
	t.Parallel()
	none := func() (string, error) { return "", nil }
	broken := func() (string, error) { return "", os.ErrNotExist }
	_, err := New([]Config{
		{Name: "a", Provider: "opanai"},
		{Name: "b", Provider: ProviderOpenAI},
		{Name: "c", Provider: ProviderOpenAI, Model: "m", Key: none, BaseURL: "localhost:8000", Timeout: -1, Concurrency: -1, Attempts: -1},
		{Name: "c", Provider: ProviderOpenAI, Model: "m", Key: key},
		{Name: "d", Provider: ProviderAnthropic, Model: "m", Key: broken, BaseURL: "https://host/v1/", Price: &Price{InputMicrosPerMTok: -1}},
		{Name: "e", Provider: ProviderScripted},
		{Name: "f", Provider: ProviderScripted, ScriptPath: "testdata/nowhere.yaml"},
		{Name: "g", Provider: ProviderOpenAI, Model: "m", Key: key, BaseURL: "https://user:hidden@host/v1", ScriptPath: "x"},
		{Name: "h", Provider: ProviderOpenAI, Model: "m", Key: key, Params: Params{Temperature: new(2.1), TopP: new(-0.1), MaxOutputTokens: new(int64(0)), Thinking: "enabled"}},
		{Name: "i", Provider: ProviderAnthropic, Model: "m", Key: key, Params: Params{Temperature: new(1.5), TopP: new(0.5), Seed: new(int64(1)), Thinking: "enabled", ThinkingBudgetTokens: new(int64(9000))}},
		{Name: "j", Provider: ProviderAnthropic, Model: "m", Key: key, Params: Params{Thinking: "hard"}},
		{Name: "k", Provider: ProviderAnthropic, Model: "m", Key: key, Params: Params{ThinkingBudgetTokens: new(int64(2000))}},
		{Provider: ProviderScripted, Scripted: NewScripted(nil)},
	}, Deps{})
	if err == nil {
		t.Fatal("no fault found")
	}
	want := []string{
		`models.a.provider: "opanai"`,
		"models.b.model: is missing", "models.b.api_key_env: is missing",
		"models.c.base_url:", "models.c.api_key: is empty", "models.c.timeout:", "models.c.concurrency:", "models.c.attempts:",
		"models.c.name: is there twice",
		"models.d.api_key: file does not exist", "models.d.base_url: must not end in /v1", "models.d.price:",
		"models.e.script: name the YAML file",
		"models.f.script: read the script",
		"models.g.base_url: must hold no user", "models.g.script: is only for",
		"models.h.params.temperature:", "models.h.params.top_p:", "models.h.params.max_output_tokens:", "models.h.params.thinking:",
		"models.i.params.temperature: 1.5", "models.i.params.temperature: must be 1", "models.i.params.top_p: must be at least 0.95", "models.i.params.seed:", "models.i.params.thinking_budget_tokens: must be at least 1024 and below",
		"models.j.params.thinking:", "models.k.params.thinking_budget_tokens: needs thinking",
		"models..name: is missing",
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in\n%v", w, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != len(want) {
		t.Errorf("%d faults, want %d:\n%v", n, len(want), err)
	}
	if strings.Contains(err.Error(), "hidden") {
		t.Error("the password in base_url is shown")
	}
}

func TestRespond_RefusesAModelThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := route(t, Config{Name: "main", Provider: ProviderScripted, Scripted: NewScripted(nil)}, nil)
	_, err := ask(t, r, func(q *fact.Request) { q.Spec.Name = "gone" })
	wantError(t, err, schemas.ClassTerminal, schemas.CodeModelUnavailable, `no model "gone"`)
	_, err = ask(t, r, func(q *fact.Request) { q.Spec.Provider = ProviderOpenAI })
	wantError(t, err, schemas.ClassTerminal, schemas.CodeModelUnavailable, "of provider scripted now")
}

func TestSpec_RecordsParamsInCanonicalForm(t *testing.T) {
	t.Parallel()
	cfg := openAIConfig("http://local/v1")
	cfg.Params = Params{
		TopP: new(1e-7), Temperature: new(0.20), Stop: []string{"<é\u2028"}, Seed: new(int64(3)), MaxOutputTokens: new(int64(20)),
		StrictTools: new(false), ParallelToolCalls: new(true), ReasoningEffort: "low",
	}
	spec, ok := route(t, cfg, nil).Spec("main")
	if !ok {
		t.Fatal("no spec")
	}
	want := `{"max_output_tokens":20,"parallel_tool_calls":true,"reasoning_effort":"low","seed":3,"stop":["<é` + "\u2028" +
		`"],"strict_tools":false,"temperature":0.2,"top_p":1e-7}`
	if spec.Name != "main" || spec.Provider != "openai" || spec.Model != "gpt-5-mini" || string(spec.Params) != want {
		t.Errorf("got %+v\nparams %s\nwant   %s", spec, spec.Params, want)
	}
	back, err := parseParams(spec.Params)
	if err != nil || *back.TopP != 1e-7 || back.strictTools() {
		t.Errorf("read back %+v, %v", back, err)
	}
	if spec, _ := route(t, openAIConfig("http://local/v1"), nil).Spec("main"); spec.Params != nil {
		t.Errorf("no params are %s, want nil", spec.Params)
	}
}

func TestPrice_CountsInMicros(t *testing.T) {
	t.Parallel()
	usage := schemas.Usage{InputTokens: 1_000_000, CacheReadTokens: 400_000, OutputTokens: 10_000, ReasoningTokens: 9_000}
	tests := []struct {
		name  string
		price *Price
		usage schemas.Usage
		want  *int64
	}{
		{"unknown without a price", nil, usage, nil},
		{"cached tokens at their price", &Price{250_000, 2_000_000, new(int64(25_000))}, usage, new(int64(150_000 + 10_000 + 20_000))},
		{"cached tokens at the input price", &Price{250_000, 2_000_000, nil}, usage, new(int64(250_000 + 20_000))},
		{"cached tokens for nothing", &Price{250_000, 0, new(int64(0))}, usage, new(int64(150_000))},
		{"half a micro counts", &Price{500_000, 0, nil}, schemas.Usage{InputTokens: 1}, new(int64(1))},
		{"less does not", &Price{499_999, 0, nil}, schemas.Usage{InputTokens: 1}, new(int64(0))},
		{"more cached than there were", &Price{1_000_000, 0, new(int64(0))}, schemas.Usage{InputTokens: 1, CacheReadTokens: 2}, new(int64(0))},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := tc.price.cost(tc.usage)
			if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestShortID_IsOneThatEveryProviderTakes(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for step := range 50 {
		for position := range 50 {
			id := madeID("turn", step, position)
			if id != madeID("turn", step, position) {
				t.Fatal("not the same twice")
			}
			if len(id) != 9 || strings.Trim(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
				t.Fatalf("%q is not nine letters and digits", id)
			}
			if seen[id] {
				t.Fatalf("%q is there twice", id)
			}
			seen[id] = true
		}
	}
	if madeID("turn1", 1, 0) == madeID("turn", 11, 0) {
		t.Error("two places share an id")
	}
}

func TestDialects_FitOnlyWhatTheProviderEnforces(t *testing.T) {
	t.Parallel()
	object := func(props string, required string) string {
		return `{"type":"object","properties":{` + props + `},"required":[` + required + `],"additionalProperties":false}`
	}
	tests := []struct {
		name              string
		schema            string
		openai, anthropic bool
	}{
		{"closed, all required", object(`"a":{"type":"string"}`, `"a"`), true, true},
		{"without properties", `{"type":"object","additionalProperties":false}`, true, true},
		{"nullable", object(`"a":{"type":["string","null"]}`, `"a"`), true, true},
		{"enum and const", object(`"a":{"enum":["x","y"]},"b":{"const":1}`, `"a","b"`), true, true},
		{"nested in a list", object(`"a":{"type":"array","items":`+object(`"b":{"type":"integer"}`, `"b"`)+`}`, `"a"`), true, true},
		{"one of two", object(`"a":{"anyOf":[{"type":"string"},{"type":"null"}]}`, `"a"`), true, true},
		{"bounds", object(`"a":{"type":"integer","minimum":1}`, `"a"`), true, false},
		{"a list of two at least", object(`"a":{"type":"array","items":{"type":"string"},"minItems":2}`, `"a"`), true, false},
		{"references", `{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"additionalProperties":false,"$defs":{"x":{"type":"string"}}}`, true, false},
		{"a default", object(`"a":{"type":"string","default":"x"}`, `"a"`), false, true},
		{"a format of Anthropic's", object(`"a":{"type":"string","format":"uri"}`, `"a"`), false, true},
		{"a format of nobody's", object(`"a":{"type":"string","format":"iban"}`, `"a"`), false, false},
		{"open", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, false, false},
		{"open further in", object(`"a":{"type":"object","properties":{}}`, `"a"`), false, false},
		{"optional", object(`"a":{"type":"string"}`, ``), false, false},
		{"required but not there", object(``, `"a"`), false, false},
		{"a map", `{"type":"object","additionalProperties":{"type":"string"}}`, false, false},
		{"a nullable open object", object(`"a":{"type":["object","null"]}`, `"a"`), false, false},
		{"anything", object(`"a":true`, `"a"`), false, false},
		{"oneOf", object(`"a":{"oneOf":[{"type":"string"}]}`, `"a"`), false, false},
		{"no object", `{"type":"string"}`, false, false},
		{"a choice at the top", `{"type":"object","anyOf":[],"additionalProperties":false}`, false, false},
		{"no JSON", `{`, false, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, got := openAIDialect().fits([]byte(tc.schema)); got != tc.openai {
				t.Errorf("openai: %v, want %v", got, tc.openai)
			}
			if _, got := anthropicDialect().fits([]byte(tc.schema)); got != tc.anthropic {
				t.Errorf("anthropic: %v, want %v", got, tc.anthropic)
			}
		})
	}
}
