package schemas

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/avro"
)

// breaks lists what is wrong in going from an old schema of a record to a new one.
func breaks(oldText, newText string) []string {
	var faults []string
	was, err := parseAvroSchema(oldText, schemaLimits{})
	if err != nil {
		return []string{"old: " + err.Error()}
	}
	is, err := parseAvroSchema(newText, schemaLimits{})
	if err != nil {
		return []string{"new: " + err.Error()}
	}
	if _, err := resolveAvro(was, is); err != nil {
		faults = append(faults, "new cannot read old: "+err.Error())
	}
	if _, err := resolveAvro(is, was); err != nil {
		faults = append(faults, "old cannot read new: "+err.Error())
	}
	oracleOld, err := avro.Parse(oldText)
	if err != nil {
		return append(faults, "old: "+err.Error())
	}
	oracleNew, err := avro.Parse(newText)
	if err != nil {
		return append(faults, "new: "+err.Error())
	}
	if err := avro.CheckCompatibility(oracleOld, oracleNew); err != nil {
		faults = append(faults, "new cannot read old: "+err.Error())
	}
	if err := avro.CheckCompatibility(oracleNew, oracleOld); err != nil {
		faults = append(faults, "old cannot read new: "+err.Error())
	}
	return append(faults, changedFields("", was, is)...)
}

// changedFields finds what resolution lets pass: a field that is gone or renamed (its default hides it), retyped within
// what can be promoted, or has another default; and new ones without a default.
func changedFields(path string, was, is *avroType) []string {
	var faults []string
	if was.kind != is.kind || was.name != is.name || was.logical != is.logical {
		return []string{fmt.Sprintf("%s: %s %s became %s %s", path, was.kind, was.name, is.kind, is.name)}
	}
	for i := range was.fields {
		old := &was.fields[i]
		at := path + "." + old.name
		now := is.fieldFor(&avroField{name: old.name})
		if now == nil {
			faults = append(faults, at+" is gone")
			continue
		}
		if old.hasDefault != now.hasDefault || !reflect.DeepEqual(old.def, now.def) {
			faults = append(faults, at+" has another default")
		}
		faults = append(faults, changedFields(at, old.typ, now.typ)...)
	}
	for i := range is.fields {
		if f := &is.fields[i]; was.fieldFor(&avroField{name: f.name}) == nil && !f.hasDefault {
			faults = append(faults, path+"."+f.name+" is new and has no default")
		}
	}
	if len(was.branches) != len(is.branches) {
		return append(faults, path+": the union changed")
	}
	for i := range was.branches {
		faults = append(faults, changedFields(path, was.branches[i], is.branches[i])...)
	}
	if was.items != nil {
		faults = append(faults, changedFields(path+"[]", was.items, is.items)...)
	}
	return faults
}

func TestEvolution_EveryReleaseReadsEveryOther(t *testing.T) {
	t.Parallel()
	for _, r := range Records() {
		t.Run(string(r), func(t *testing.T) {
			t.Parallel()
			releases := r.released()
			if len(releases) == 0 {
				t.Fatal("no released schema is kept")
			}
			releases = append(releases, r.Schema())
			for i, old := range releases {
				for _, later := range releases[i:] {
					for _, fault := range breaks(old, later) {
						t.Error(fault)
					}
				}
			}
		})
	}
}

func TestEvolution_TheCheckSeesBreaks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		old, new string
		ok       bool
	}{
		{"a new field with a default", `{"name": "reason"`, `{"name": "later", "type": ["null","long"], "default": null}, {"name": "reason"`, true},
		{"another doc", `"doc": "Why, with`, `"doc": "The reason, with`, true},
		{"a new field without a default", `{"name": "reason"`, `{"name": "later", "type": "long"}, {"name": "reason"`, false},
		{"a field renamed", `{"name": "reason"`, `{"name": "why"`, false},
		{"a field gone", `{"name": "type", "type": "string", "default": "turn", `, `{"name": "kind", "type": "string", "default": "turn", `, false},
		{"a field retyped", `{"name": "turn_id", "type": "string"`, `{"name": "turn_id", "type": "bytes"`, false},
		{"a field no longer optional", `{"name": "agent", "type": ["null", "string"], "default": null`, `{"name": "agent", "type": "string", "default": ""`, false},
		{"a union with more branches", `{"name": "agent", "type": ["null", "string"]`, `{"name": "agent", "type": ["null", "string", "long"]`, false},
		{"another default", `"default": "turn"`, `"default": "cancel"`, false},
		{"another unit of time", `timestamp-millis`, `timestamp-micros`, false},
		{"a nested field renamed", `{"name": "media_type"`, `{"name": "mime_type"`, false},
		{"a record renamed", `"name": "TurnEvent"`, `"name": "Turn"`, false},
		{"another namespace", `"namespace": "run.lathe.v1"`, `"namespace": "run.lathe.v2"`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			was := RecordTurnEvent.Schema()
			is := strings.Replace(was, tc.old, tc.new, 1)
			if is == was {
				t.Fatal("nothing was changed")
			}
			if faults := breaks(was, is); (len(faults) == 0) != tc.ok {
				t.Errorf("got %q", faults)
			}
		})
	}
}

func TestEvolution_RecordsOfLaterReleasesAreRead(t *testing.T) {
	t.Parallel()
	later := strings.Replace(RecordTurnEvent.Schema(), `{"name": "reason"`,
		`{"name": "priority", "type": ["null", "long"], "default": null}, {"name": "reason"`, 1)
	w, err := parseAvroSchema(later, schemaLimits{})
	if err != nil {
		t.Fatal(err)
	}
	codec, err := newGoavroCodec(w)
	if err != nil {
		t.Fatal(err)
	}
	var faults rawFaults
	native := nativeTurnEvent(sampleTurn(), &faults)
	native["priority"] = branch("long", int64(5))
	b, err := codec.append([]byte{0, 0, 0, 0, 1}, native)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(DecoderOptions{Registry: &schemaMap{ids: map[int]string{1: later}}})
	got, err := d.Decode(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, got.Event, sampleTurn())
}

func TestSchema_HasTheFieldsOfTheTypes(t *testing.T) {
	t.Parallel()
	for record, typ := range map[Record]reflect.Type{
		RecordTurnEvent: reflect.TypeFor[TurnEvent](), RecordToolEvent: reflect.TypeFor[ToolEvent](),
		RecordTurnOutput: reflect.TypeFor[TurnOutput](), RecordStatusEvent: reflect.TypeFor[StatusEvent](),
	} {
		t.Run(string(record), func(t *testing.T) {
			t.Parallel()
			fields := make(map[string]bool)
			for _, f := range reflect.VisibleFields(typ) {
				if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
					fields[name] = true
				}
			}
			schema := record.parse()
			for i := range schema.fields {
				if !fields[schema.fields[i].name] {
					t.Errorf("%s has no %s", typ, schema.fields[i].name)
				}
				delete(fields, schema.fields[i].name)
			}
			if len(fields) > 0 {
				t.Errorf("the schema has no %v", fields)
			}
		})
	}
}

func TestSchema_KeepsTheRulesOfTheContract(t *testing.T) {
	t.Parallel()
	for _, r := range Records() {
		t.Run(string(r), func(t *testing.T) {
			t.Parallel()
			checkRules(t, "", r.parse(), make(map[*avroType]bool))
		})
	}
}

func checkRules(t *testing.T, path string, typ *avroType, seen map[*avroType]bool) {
	t.Helper()
	if seen[typ] {
		return
	}
	seen[typ] = true
	if typ.kind == "record" && (typ.doc == "" || !strings.HasPrefix(typ.name, "run.lathe.v1.")) {
		t.Errorf("%s: record %s has no doc or is in another namespace", path, typ.name)
	}
	if typ.kind == "enum" {
		t.Errorf("%s is an enum, which no reader takes a new value of", path)
	}
	if typ.kind == "union" && (len(typ.branches) != 2 || typ.branches[0].kind != "null") {
		t.Errorf("%s is a union other than of null and one type", path)
	}
	for i := range typ.fields {
		f := &typ.fields[i]
		at := path + "." + f.name
		if !strings.HasSuffix(f.doc, ".") {
			t.Errorf("%s has no doc that is a sentence", at)
		}
		if f.typ.kind == "union" && (!f.hasDefault || f.def != nil) {
			t.Errorf("%s is optional without being null by default", at)
		}
		checkRules(t, at, f.typ, seen)
	}
	for _, b := range typ.branches {
		checkRules(t, path, b, seen)
	}
	if typ.items != nil {
		checkRules(t, path, typ.items, seen)
	}
}

func TestMessage_JSONHasContentOfEitherForm(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text string }{
		{"text", `{"content":"hi","role":"user"}`},
		{"no text", `{"content":"","role":"user"}`},
		{"parts", `{"content":[{"text":"a","type":"text"}],"role":"user"}`},
		{"no parts", `{"content":[],"role":"user"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var m Message
			if err := json.Unmarshal([]byte(tc.text), &m); err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(m)
			if err != nil || string(b) != tc.text {
				t.Errorf("got %s (%v), want %s", b, err, tc.text)
			}
		})
	}
	var m Message
	if err := json.Unmarshal([]byte(`{"role":"user","content":{"a":1}}`), &m); err == nil {
		t.Error("an object was taken as content")
	}
}
