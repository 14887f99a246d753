package app

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "rewrite the generated parts of the documentation and the JSON Schema")

const (
	configurationPage = "../../docs/configuration.md"
	manifestPage      = "../../docs/manifest.md"
	manifestSchema    = "../../deploy/lathe.schema.json"
)

func TestDocs_ConfigurationPageListsEverySetting(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, doc := range SettingDocs() {
		if doc.Section != "" {
			b.WriteString("\n## " + doc.Section + "\n\n| setting | type | default | meaning |\n| --- | --- | --- | --- |\n")
		}
		b.WriteString("| `" + doc.Name + "` | " + doc.Type + " | " + codeUnlessWords(doc.Default) + " | " + cell(doc.Description) + " |\n")
	}
	checkGenerated(t, configurationPage, "settings", b.String()+"\n")
}

func TestDocs_ManifestPageListsEveryKey(t *testing.T) {
	t.Parallel()
	for _, table := range []struct {
		name string
		typ  reflect.Type
	}{
		{"manifest", reflect.TypeFor[Manifest]()},
		{"agents", reflect.TypeFor[ManifestAgent]()},
		{"limits", reflect.TypeFor[TurnLimits]()},
		{"models", reflect.TypeFor[ManifestModel]()},
		{"params", reflect.TypeFor[ManifestParams]()},
		{"price", reflect.TypeFor[ManifestPrice]()},
		{"tools", reflect.TypeFor[ManifestTool]()},
		{"retry", reflect.TypeFor[ManifestRetry]()},
	} {
		var b strings.Builder
		b.WriteString("\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n")
		for _, f := range manifestFields(table.typ) {
			fallback := f.fallback
			switch {
			case f.required:
				fallback = "required"
			case f.shown != "":
				fallback = f.shown
			}
			b.WriteString("| `" + f.key + "` | " + f.typeName() + " | " + codeUnlessWords(fallback) + " | " + cell(f.describe()) + " |\n")
		}
		checkGenerated(t, manifestPage, table.name, b.String()+"\n")
	}
}

// codeUnlessWords sets a default as code, unless it is a phrase.
func codeUnlessWords(text string) string {
	if text == "" || text == "required" || strings.Contains(text, " ") {
		return text
	}
	return "`" + text + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// checkGenerated compares what stands between the markers of name with want, or rewrites it with -update.
func checkGenerated(t *testing.T, page, name, want string) {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->\n"
	head, rest, ok := strings.Cut(string(content), begin)
	got, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers %q and %q", page, begin, end)
	}
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+want+end+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s has drifted from the code; run this test with -update (-want +got):\n%s", page, diff)
	}
}

func TestDocs_SchemaIsWhatTheManifestReads(t *testing.T) {
	t.Parallel()
	schema := schemaOf(configField{typ: reflect.TypeFor[Manifest](), required: true})
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "lathe.yaml"
	want, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(manifestSchema, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(manifestSchema)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s has drifted from the code; run this test with -update (-want +got):\n%s", manifestSchema, diff)
	}
}

// schemaOf is the JSON Schema of a field. Null is unset, so all but required fields take it.
func schemaOf(f configField) map[string]any {
	s := schemaOfType(f)
	if f.desc != "" {
		s["description"] = f.describe()
	}
	if len(f.oneOf) > 0 {
		s["enum"] = f.oneOf
	}
	if f.fallback != "" && f.env == "" {
		s["default"] = f.fallback
		if n, isNumber := configNumber(reflect.Zero(f.typ)); isNumber && s["type"] != "string" {
			_ = n
			s["default"] = json.RawMessage(f.fallback)
		}
	}
	if f.required {
		return s
	}
	if types, ok := s["type"].(string); ok {
		s["type"] = []string{types, "null"}
	} else if types, ok := s["type"].([]string); ok {
		s["type"] = append(types, "null")
	}
	if len(f.oneOf) > 0 {
		values := make([]any, 0, len(f.oneOf)+1)
		for _, v := range f.oneOf {
			values = append(values, v)
		}
		s["enum"] = append(values, nil)
	}
	return s
}

func schemaOfType(f configField) map[string]any {
	t := f.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h|d))+$`}
	case reflect.TypeFor[ByteSize]():
		return map[string]any{"type": []string{"string", "integer"}, "pattern": `^[0-9]+ *(B|KiB|MiB|GiB)?$`}
	case reflect.TypeFor[ManifestGate]():
		return map[string]any{"type": []string{"boolean", "string"}}
	case reflect.TypeFor[ManifestRetry]():
		s := objectSchema(t)
		s["type"] = []string{"object", "integer"}
		s["minimum"] = 0
		return s
	}
	//exhaustive:ignore // The manifest has no other kinds but text.
	switch t.Kind() {
	case reflect.Struct:
		return objectSchema(t)
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(configField{typ: t.Elem(), required: t.Elem() != reflect.TypeFor[ManifestTool]()})}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(configField{typ: t.Elem(), required: true})}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Float64:
		s := map[string]any{"type": "integer"}
		if t.Kind() == reflect.Float64 {
			s["type"] = "number"
		}
		if f.min != "" {
			s["minimum"] = f.bound(f.min)
		}
		if f.max != "" {
			s["maximum"] = f.bound(f.max)
		}
		return s
	default:
		return map[string]any{"type": "string"}
	}
}

func objectSchema(t reflect.Type) map[string]any {
	properties := map[string]any{}
	var required []string
	for _, f := range manifestFields(t) {
		properties[f.key] = schemaOf(f)
		if f.required {
			required = append(required, f.key)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	return s
}

// compileManifestSchema compiles the schema as it stands in the tree.
func compileManifestSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.FromSlash(manifestSchema))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// manifestExample is the YAML of the first yaml block of the manifest page.
func manifestExample(tb testing.TB) []byte {
	tb.Helper()
	page, err := os.ReadFile(manifestPage)
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, ok := bytes.Cut(page, []byte("```yaml\n"))
	block, _, ok2 := bytes.Cut(rest, []byte("```\n"))
	if !ok || !ok2 {
		tb.Fatalf("%s has no yaml block", manifestPage)
	}
	return block
}
