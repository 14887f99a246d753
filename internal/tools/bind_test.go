package tools

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func with(o Options, change func(*Options)) Options {
	change(&o)
	return o
}

// faultyTools has one tool for each way to be wrong.
func faultyTools() []Tool {
	input := func(raw string) Options {
		return with(reads(), func(o *Options) { o.Input = json.RawMessage(raw) })
	}
	no, yes := false, true
	return []Tool{
		Define("good", lookup, reads()),
		Define("gate.true", lookup, with(reads(), func(o *Options) { o.RequiresApproval = true })),
		Define("gate.text", lookup, with(reads(), func(o *Options) { o.RequiresApproval = "args.total > 10" })),
		Define("gate.func", lookup, with(reads(), func(o *Options) { o.RequiresApproval = func(orderArgs) bool { return false } })),
		Define("gate.timeout", lookup, with(reads(), func(o *Options) { o.ApprovalTimeout = time.Minute })),
		Define("gate.false", lookup, with(reads(), func(o *Options) { o.RequiresApproval = false })),
		Define("gate.manifest", lookup, reads()),
		Define("1bad", lookup, reads()),
		Define("twice", lookup, reads()),
		Define("twice", lookup, reads()),
		Define("same.form", lookup, reads()),
		Define("same/form", lookup, reads()),
		Define("long_"+strings.Repeat("x", 60), lookup, reads()),
		Define("undescribed", lookup, Options{Effect: schemas.EffectRead}),
		Define("wordy", lookup, with(reads(), func(o *Options) { o.Description = strings.Repeat("é", 4097) })),
		Define("no_effect", lookup, Options{Description: "d"}),
		Define("odd_effect", lookup, Options{Description: "d", Effect: "destroy"}),
		Define("hinted", lookup, with(reads(), func(o *Options) { o.Hints.ReadOnly = &no })),
		Define("destructive", lookup, with(reads(), func(o *Options) { o.Hints.Destructive = &yes })),
		Define("weakened", lookup, writes()),
		Define("retried", lookup, with(writes(), func(o *Options) { o.Retry = Retries(2) })),
		Define("negative", lookup, with(reads(), func(o *Options) { o.Retry = Retry{Retries: 1, Jitter: 2} })),
		Define("slow", lookup, with(reads(), func(o *Options) { o.Timeout = time.Hour })),
		Define("huge", lookup, with(reads(), func(o *Options) { o.MaxResultBytes = 2 << 20 })),
		Define("version", lookup, with(reads(), func(o *Options) { o.Version = strings.Repeat("v", 129) })),
		Define[orderArgs, order]("no_func", nil, reads()),
		Define("not_object", func(*Context, int) (int, error) { return 0, nil }, reads()),
		Define("no_schema", lookup, input(`{"type":"object","properties":{"a":{"type":"strin"}}}`)),
		Define("no_json", lookup, input(`{"type":`)),
		Define("array", lookup, input(`{"type":"array"}`)),
		Define("remote", lookup, input(`{"type":"object","properties":{"a":{"$ref":"https://example.com/a.json"}}}`)),
		Define("deep", lookup, input(`{"type":"object","properties":{"a":`+strings.Repeat(`{"items":`, 64)+`{}`+strings.Repeat(`}`, 64)+`}}`)),
		Define("big", lookup, input(`{"type":"object","description":"`+strings.Repeat("x", 256<<10)+`"}`)),
		Define("draft7", lookup, input(`{"type":"object","$schema":"http://json-schema.org/draft-07/schema#"}`)),
		Define("open", lookup, input(`{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"string"}}}}`)),
		Define("bad_output", lookup, with(reads(), func(o *Options) { o.Output = json.RawMessage(`{"type":7}`) })),
	}
}

func TestBind_ReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	read := schemas.EffectRead
	settings := map[string]Settings{
		"gate.manifest": {RequiresApproval: "true"},
		"weakened":      {Effect: &read},
		"goood":         {},
	}
	agents := []AgentBinding{
		{Agent: "support", Tools: []string{"*", "good", "good", "lokup", "crm_*"}, Strict: true, Duration: 10 * time.Minute},
		{Agent: "billing", Tools: []string{"gate.*"}},
		{Agent: "billing", Tools: []string{"good"}},
	}
	bound, err := r.Bind(agents, faultyTools(), settings)
	registration, ok := errors.AsType[*RegistrationError](err)
	if !ok || bound != nil {
		t.Fatalf("got %v, %T; want a *RegistrationError", bound, err)
	}
	for _, f := range registration.Faults {
		if f.Tool == "" || f.Problem == "" || f.Fix == "" {
			t.Errorf("fault %+v has no tool, problem or fix", f)
		}
	}
	golden(t, "faults.txt", err.Error()+"\n")
}

func TestBind_LetsGatedToolsBeUnboundButNoOtherFault(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	gated := Define("refund_all", lookup, with(writes(), func(o *Options) { o.RequiresApproval = true }))
	agents := []AgentBinding{{Agent: "support", Tools: []string{"lookup"}}}
	bound, err := r.Bind(agents, []Tool{Define("lookup", lookup, reads()), gated}, nil)
	if err != nil {
		t.Fatalf("a gated tool that no agent binds: %v", err)
	}
	for _, tc := range []struct {
		name   string
		narrow []string
		want   string
	}{
		{"gated", []string{"lookup", "refund_all"}, "agent support does not have tool refund_all (it waits for a person: requires_approval is set in its definition)"},
		{"unknown", []string{"nope"}, "agent support does not have tool nope (there is no such tool)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := bound["support"].Offer(tc.narrow, true, nil)
			e, ok := errors.AsType[*schemas.Error](err)
			if !ok || e.Code != schemas.CodeToolRegistration || e.Message != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := r.Bind(agents, []Tool{Define("lookup", lookup, reads()), Define("x", lookup, Options{})}, nil); err == nil {
		t.Error("a tool without description and effect that no agent binds is no fault")
	}
}

func TestBind_AppliesSettingsButNeverOpensAGate(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	text, timeout, size := "From the manifest.", 5*time.Second, 10
	agents := []AgentBinding{{Agent: "support", Tools: []string{"lookup"}, Duration: time.Minute}}
	bound, err := r.Bind(agents, []Tool{Define("lookup", lookup, reads())},
		map[string]Settings{"lookup": {Description: &text, Timeout: &timeout, MaxResultBytes: &size, RequiresApproval: false}})
	if err != nil {
		t.Fatal(err)
	}
	got := bound["support"].tools[0]
	if got.spec.Description != text || got.timeout != timeout || got.maxResult != size {
		t.Errorf("got %q, %s, %d", got.spec.Description, got.timeout, got.maxResult)
	}
	gated := Define("lookup", lookup, with(reads(), func(o *Options) { o.RequiresApproval = true }))
	if _, err := r.Bind(agents, []Tool{gated}, map[string]Settings{"lookup": {RequiresApproval: false}}); err == nil {
		t.Error("requires_approval: false in the manifest opened a gate of the program")
	}
}

func TestBind_ShrinksDefaultsToTheAgent(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	b := bindAll(t, r, AgentBinding{Duration: 10 * time.Second}, Define("lookup", lookup, reads()))
	if got := b.tools[0].timeout; got != 10*time.Second {
		t.Errorf("the default timeout is %s under a turn of 10s", got)
	}
}

func TestFingerprint_CoversWhatTheModelIsTold(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	hash := func(name string, o Options) string {
		return bindAll(t, r, AgentBinding{}, Define(name, lookup, o)).Tools()[0].Fingerprint
	}
	base := hash("a", reads())
	for name, other := range map[string]string{
		"name":        hash("b", reads()),
		"version":     hash("a", with(reads(), func(o *Options) { o.Version = "2" })),
		"description": hash("a", with(reads(), func(o *Options) { o.Description = "Else." })),
		"schema":      hash("a", with(reads(), func(o *Options) { o.Input = json.RawMessage(`{"type":"object"}`) })),
	} {
		if other == base {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
	slow := with(reads(), func(o *Options) { o.Timeout = time.Second })
	if hash("a", slow) != base || len(base) != 64 {
		t.Error("the timeout changed the fingerprint")
	}
	strict := bindAll(t, r, AgentBinding{Strict: true}, Define("a", lookup, reads())).Tools()[0].Fingerprint
	if strict != base {
		t.Error("the provider changed the fingerprint")
	}
}

func TestOffer_NarrowsAndNeverWidens(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	b := bindAll(t, r, AgentBinding{}, Define("a.x", lookup, reads()), Define("b", lookup, reads()), Define("c", lookup, reads()))
	id := func(names ...string) []fact.Tool {
		list := []fact.Tool{}
		for _, n := range names {
			list = append(list, fact.Tool{Name: n})
		}
		return list
	}
	for _, tc := range []struct {
		name     string
		narrow   []string
		narrowed bool
		recorded []fact.Tool
		want     string
	}{
		{"all", nil, false, nil, "a_x b c"},
		{"none", nil, true, nil, ""},
		{"some, in the agent's order", []string{"c", "a.x"}, true, nil, "a_x c"},
		{"recorded", nil, false, id("c", "b"), "b c"},
		{"recorded ones that are gone", nil, false, id("gone", "b"), "b"},
		{"recorded none", nil, false, id(), ""},
		{"narrowed to one that is gone since", []string{"gone", "b"}, true, id("gone", "b", "c"), "b"},
		{"recorded, all there", nil, false, id("a.x", "b", "c"), "a_x b c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			specs, ids, err := b.Offer(tc.narrow, tc.narrowed, tc.recorded)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, s := range specs {
				got = append(got, s.Name)
				if modelName(ids[i].Name) != s.Name {
					t.Errorf("spec %s stands beside tool %s", s.Name, ids[i].Name)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("offered %v, want %s", got, tc.want)
			}
		})
	}
}

func TestMatch_KnowsStarsAndQuestionMarks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "a/b.c", true},
		{"crm_*", "crm_", true},
		{"crm_*", "crm", false},
		{"*_read", "crm_read_read", true},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXcYb", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"abc", "abcd", false},
		{"", "a", false},
	} {
		if got := match(tc.pattern, tc.name); got != tc.want {
			t.Errorf("%q fits %q: %v, want %v", tc.name, tc.pattern, got, tc.want)
		}
	}
}

func TestDescribe_ShowsWhatTheModelSees(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	b := bindAll(t, r, AgentBinding{Strict: true}, Define("orders.lookup", lookup, reads()),
		Define("refund", func(*Context, struct{}) (string, error) { return "", nil }, writes()))
	var all strings.Builder
	for _, format := range []Format{FormatOpenAI, FormatAnthropic, FormatMCP} {
		raw, err := b.Describe(format)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("-- " + string(format) + "\n" + string(raw) + "\n")
	}
	golden(t, "describe.txt", all.String())
	if _, err := b.Describe("yaml"); err == nil {
		t.Error("an unknown format is no error")
	}
}
