package app

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// What the schema accepts an editor shows as right: it must be what is read, key by key.
func TestManifestSchema_AgreesWithTheReader(t *testing.T) {
	t.Parallel()
	schema := compileManifestSchema(t)
	validate := func(t *testing.T, text string) error {
		t.Helper()
		asJSON, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(value)
	}
	for _, tc := range []struct {
		name, text string
		ok         bool
	}{
		{"the example", string(manifestExample(t)), true},
		{"the smallest", minimal, true},
		{"nulls", minimal + "tools: {t: {retry: null, effect: null, timeout: null, max_result_bytes: null}, u: }\n", true},
		{"sizes and retries as numbers", minimal + "tools: {t: {retry: 2, max_result_bytes: 65536}}\n", true},
		{"a gate", minimal + "tools: {t: {requires_approval: true}, u: {requires_approval: \"args.x > 1\"}}\n", true},
		{"days", minimal + "tools: {t: {approval_timeout: 1d12h}}\n", true},
		{"an unknown key", minimal + "agent: {}\n", false},
		{"an unknown key of an agent", strings.Replace(minimal, "{model: m}", "{model: m, sysem: x}", 1), false},
		{"an unknown limit", strings.Replace(minimal, "{model: m}", "{model: m, limits: {step: 1}}", 1), false},
		{"an unknown key of a tool", minimal + "tools: {t: {retries: 1}}\n", false},
		{"an unknown key of a retry", minimal + "tools: {t: {retry: {retries: 1, min: 1s}}}\n", false},
		{"no model", strings.Replace(minimal, "{model: m}", "{}", 1), false},
		{"no agents", "version: 1\nmodels: {}\n", false},
		{"another version", strings.Replace(minimal, "1", "2", 1), false},
		{"an unknown choice", strings.Replace(minimal, "{model: m}", "{model: m, history: all}", 1), false},
		{"a size in thousands", minimal + "tools: {t: {max_result_bytes: 2MB}}\n", false},
		{"a duration without a unit", minimal + "tools: {t: {timeout: \"5\"}}\n", false},
		{"a negative retry", minimal + "tools: {t: {retry: -1}}\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := validate(t, tc.text); (err == nil) != tc.ok {
				t.Errorf("the schema says %v", err)
			}
			if _, err := manifestOf(t, tc.text, map[string]string{"s.yaml": ""}); (err == nil) != tc.ok {
				t.Errorf("the reader says %v", err)
			}
		})
	}
}

// The tags are a small language of their own: each must be one that is understood.
func TestConfigTags_AreWellFormed(t *testing.T) {
	t.Parallel()
	fields := settingFields(reflect.TypeFor[Settings]())
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Manifest](), reflect.TypeFor[ManifestAgent](), reflect.TypeFor[ManifestModel](), reflect.TypeFor[ManifestParams](),
		reflect.TypeFor[ManifestPrice](), reflect.TypeFor[ManifestTool](), reflect.TypeFor[ManifestRetry](), reflect.TypeFor[TurnLimits](),
	} {
		fields = append(fields, manifestFields(typ)...)
	}
	names := map[string]bool{}
	for _, f := range fields {
		id := f.env + "/" + f.key
		if f.desc == "" || f.typeName() == "" {
			t.Errorf("%s has no description or type", id)
		}
		if f.env != "" && f.key == "" && names[f.env] {
			t.Errorf("%s stands twice", f.env)
		}
		names[f.env] = true
		if f.min != "" && f.max != "" && f.bound(f.min) > f.bound(f.max) {
			t.Errorf("%s: min is above max", id)
		}
		if f.fallback == "" || f.typ.Kind() == reflect.Bool {
			continue
		}
		v := reflect.New(f.typ).Elem()
		setConfigText(v, f.fallback)
		if err := f.check(v); err != nil {
			t.Errorf("%s: its default %v", id, err)
		}
	}
	if len(fields) < 80 {
		t.Errorf("only %d fields were found", len(fields))
	}
}
