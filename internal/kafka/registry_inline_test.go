package kafka

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/linkedin/goavro/v2"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/lathe-run/lathe/schemas"
)

func TestRegistry_WritesReferencesIntoTheSchema(t *testing.T) {
	t.Parallel()
	ref := func(name, subject string) sr.SchemaReference {
		return sr.SchemaReference{Name: name, Subject: subject, Version: 1}
	}
	for _, tc := range []struct {
		name    string
		refs    map[string]sr.Schema // by subject
		root    sr.Schema
		want    string
		invalid bool
	}{
		{
			name: "twice used, defined once",
			refs: map[string]sr.Schema{
				"call": {Schema: `{"type":"record","name":"Call","namespace":"a.b","fields":[{"name":"id","type":"long","default":12345678901234567890}]}`},
			},
			root: sr.Schema{
				Schema: `{"type":"record","name":"Turn","namespace":"a.b","fields":[
					{"name":"first","type":"Call"},{"name":"all","type":{"type":"array","items":"a.b.Call"}}]}`,
				References: []sr.SchemaReference{ref("a.b.Call", "call")},
			},
			want: `{"fields":[{"name":"first","type":{"fields":[{"default":12345678901234567890,"name":"id","type":"long"}],` +
				`"name":"a.b.Call","type":"record"}},{"name":"all","type":{"items":"a.b.Call","type":"array"}}],"name":"a.b.Turn","type":"record"}`,
		},
		{
			name: "a chain over namespaces, in unions and maps",
			refs: map[string]sr.Schema{
				"inner": {Schema: `{"type":"enum","name":"x.Effect","symbols":["read","write"]}`},
				"outer": {
					Schema:     `{"type":"record","name":"Tool","namespace":"y","fields":[{"name":"effect","type":["null","x.Effect"]},{"name":"next","type":["null","Tool"]}]}`,
					References: []sr.SchemaReference{ref("x.Effect", "inner")},
				},
			},
			root: sr.Schema{
				Schema: `{"type":"record","name":"Turn","namespace":"z","fields":[
					{"name":"tools","type":{"type":"map","values":"y.Tool"}},{"name":"e","type":{"type":"x.Effect"}}]}`,
				References: []sr.SchemaReference{ref("y.Tool", "outer")},
			},
			want: `{"fields":[{"name":"tools","type":{"type":"map","values":{"fields":[{"name":"effect","type":["null",` +
				`{"name":"x.Effect","symbols":["read","write"],"type":"enum"}]},{"name":"next","type":["null","y.Tool"]}],` +
				`"name":"y.Tool","type":"record"}}},{"name":"e","type":{"type":"x.Effect"}}],"name":"z.Turn","type":"record"}`,
		},
		{
			name: "the root is a union of references",
			refs: map[string]sr.Schema{
				"a": {Schema: `{"type":"record","name":"A","fields":[]}`}, "b": {Schema: `{"type":"fixed","name":"B","size":4}`},
			},
			root: sr.Schema{Schema: `["A","B"]`, References: []sr.SchemaReference{ref("A", "a"), ref("B", "b")}},
			want: `[{"fields":[],"name":"A","type":"record"},{"name":"B","size":4,"type":"fixed"}]`,
		},
		{
			name: "a type that nobody defines",
			refs: map[string]sr.Schema{"a": {Schema: `{"type":"record","name":"A","fields":[]}`}},
			root: sr.Schema{
				Schema:     `{"type":"record","name":"T","fields":[{"name":"x","type":"Gone"}]}`,
				References: []sr.SchemaReference{ref("A", "a")},
			},
			invalid: true,
		},
		{
			name: "a reference that does not exist",
			root: sr.Schema{
				Schema:     `{"type":"record","name":"T","fields":[]}`,
				References: []sr.SchemaReference{ref("Gone", "gone")},
			},
			invalid: true,
		},
		{
			name: "references in a circle",
			refs: map[string]sr.Schema{
				"a": {Schema: `{"type":"record","name":"A","fields":[{"name":"b","type":["null","B"]}]}`, References: []sr.SchemaReference{ref("B", "b")}},
				"b": {Schema: `{"type":"record","name":"B","fields":[{"name":"a","type":["null","A"]}]}`, References: []sr.SchemaReference{ref("A", "a")}},
			},
			root: sr.Schema{Schema: `"A"`, References: []sr.SchemaReference{ref("A", "a")}},
			want: `{"fields":[{"name":"b","type":["null",{"fields":[{"name":"a","type":["null","A"]}],"name":"B","type":"record"}]}],` +
				`"name":"A","type":"record"}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, fake := newTestRegistry(t, nil)
			serve(fake, tc.root, tc.refs)
			got, err := r.SchemaByID(t.Context(), 1)
			if tc.invalid {
				wantError(t, err, schemas.ClassTerminal, "")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if _, err := goavro.NewCodec(got); err != nil {
				t.Errorf("the whole schema does not compile: %v", err)
			}
			latest, err := r.Latest(t.Context(), "root")
			if err != nil || latest.Schema != got {
				t.Errorf("latest is %+v, %v", latest, err)
			}
		})
	}
}

func TestRegistry_RefusesSchemasWithoutEnd(t *testing.T) {
	t.Parallel()
	r, fake := newTestRegistry(t, nil)
	refs := map[string]sr.Schema{}
	for i := range maxReferences + 2 {
		refs[fmt.Sprintf("s%d", i)] = sr.Schema{
			Schema:     fmt.Sprintf(`{"type":"record","name":"R%d","fields":[]}`, i),
			References: []sr.SchemaReference{{Name: "next", Subject: fmt.Sprintf("s%d", i+1), Version: 1}},
		}
	}
	serve(fake, refs["s0"], refs)
	_, err := r.SchemaByID(t.Context(), 1)
	wantError(t, err, schemas.ClassTerminal, "cannot be resolved")

	deep := `"string"`
	for range maxSchemaDepth + 1 {
		deep = `{"type":"array","items":` + deep + `}`
	}
	root := sr.Schema{Schema: deep, References: []sr.SchemaReference{{Name: "Leaf", Subject: "leaf", Version: 1}}}
	r, fake = newTestRegistry(t, nil)
	serve(fake, root, map[string]sr.Schema{"leaf": {Schema: `{"type":"record","name":"Leaf","fields":[]}`}})
	_, err = r.SchemaByID(t.Context(), 1)
	wantError(t, err, schemas.ClassTerminal, "cannot be resolved")
}

// serve answers with schemas that srfake itself would not take: the root as id 1 and as the latest of subject root, the
// others as version 1 of their subjects.
func serve(fake *srfake.Registry, root sr.Schema, refs map[string]sr.Schema) {
	fake.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		subject, isSubject := strings.CutPrefix(req.URL.Path, "/subjects/")
		subject, _, _ = strings.Cut(subject, "/")
		schema, found := refs[subject]
		if !isSubject || subject == "root" {
			schema, found = root, true
		}
		if found && (!isSubject || subject == "root" || req.URL.Query().Get("deleted") == "true") {
			_ = json.NewEncoder(w).Encode(schema)
			return true
		}
		return answer(http.StatusNotFound, `{"error_code":40401,"message":"Subject not found"}`)(w, req)
	})
}
