package schemas

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

const docFile = "../docs/events.md"

func TestDocs_AreMadeFromTheSchemas(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	want := page
	for name, text := range docSections() {
		want = replaceSection(t, want, name, text)
	}
	if want == page {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the schemas say; run go test ./schemas -run Docs -update", docFile)
	}
	if err := os.WriteFile(docFile, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func replaceSection(t *testing.T, page, name, text string) string {
	t.Helper()
	before, rest, ok := strings.Cut(page, "<!-- generated: "+name+" -->\n")
	_, after, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 {
		t.Fatalf("%s has no section for %s", docFile, name)
	}
	return before + "<!-- generated: " + name + " -->\n" + text + "<!-- end -->" + after
}

// envelopeFields is how many fields each output record begins with that all of them have.
const envelopeFields = 10

func docSections() map[string]string {
	sections := make(map[string]string)
	for _, r := range Records() {
		typ := r.parse()
		from := envelopeFields
		if r == RecordTurnEvent {
			from = 0
		}
		sections[string(r)] = typ.doc + "\n\n" + docRecord(typ, from)
	}
	env := RecordToolEvent.parse()
	env.fields = env.fields[:envelopeFields]
	sections["Envelope"] = docRecord(env, 0)
	return sections
}

// docRecord writes a record's table, and after it those of the records in it.
func docRecord(t *avroType, from int) string {
	var b strings.Builder
	var inner []*avroType
	b.WriteString("| field | type | default | meaning |\n| --- | --- | --- | --- |\n")
	for i := range t.fields[from:] {
		f := &t.fields[from+i]
		def := "required"
		if f.hasDefault {
			def = docDefault(f.def)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, docType(f.typ), def, strings.ReplaceAll(f.doc, "|", `\|`))
		if r := innerRecord(f.typ); r != nil {
			inner = append(inner, r)
		}
	}
	for _, r := range inner {
		fmt.Fprintf(&b, "\n`%s`: %s\n\n%s", unqualified(r.name), r.doc, docRecord(r, 0))
	}
	return b.String()
}

func docDefault(def any) string {
	switch d := def.(type) {
	case nil:
		return "null"
	case string:
		return "`" + d + "`"
	case map[string]any:
		return "`{}`"
	case []any:
		return "`[]`"
	}
	return fmt.Sprintf("`%v`", def)
}

func docType(t *avroType) string {
	switch {
	case t.kind == "union":
		return docType(t.branches[1])
	case t.kind == "array":
		return "array of " + docType(t.items)
	case t.kind == "map":
		return "map of " + docType(t.items)
	case t.logical == "timestamp-millis":
		return "time"
	case t.name != "":
		return "`" + unqualified(t.name) + "`"
	}
	return t.kind
}

func innerRecord(t *avroType) *avroType {
	switch t.kind {
	case "union":
		return innerRecord(t.branches[1])
	case "array", "map":
		return innerRecord(t.items)
	case "record":
		return t
	}
	return nil
}

func TestDocs_HaveEveryCodeTypeAndStatus(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if strings.HasPrefix(v.Names[0].Name, "SafeTo") || strings.HasPrefix(v.Names[0].Name, "AtMost") {
				continue // How a tool is declared; it stands in no event.
			}
			word, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if n++; !strings.Contains(string(page), "`"+word+"`") {
				t.Errorf("%s does not have %s", docFile, word)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d constants were found", n)
	}
}
