// Package docs checks what the documents say about the tree.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// testFunc is the head of a test in Go.
var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)

// named is a test that a document names, maybe with the name of one of its cases.
var named = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)(?:/([^`]+))?`")

// tests finds every test of the tree, with the text of its package's tests.
func tests(t *testing.T) map[string]string {
	t.Helper()
	packages, where := map[string]string{}, map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		packages[dir] += string(raw)
		for _, m := range testFunc.FindAllStringSubmatch(string(raw), -1) {
			where[m[1]] = dir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, dir := range where {
		out[name] = packages[dir]
	}
	return out
}

// TestReliability_NamesOnlyTestsThatExist keeps the document from promising what nothing checks any more: each test that it names is
// there, and so is each case, as a text in the tests of that package.
func TestReliability_NamesOnlyTestsThatExist(t *testing.T) {
	t.Parallel()
	all := tests(t)
	doc := read(t, "docs/reliability.md")
	mentions := named.FindAllStringSubmatch(doc, -1)
	if len(mentions) < 100 {
		t.Fatalf("only %d tests are named", len(mentions))
	}
	for _, m := range mentions {
		text, ok := all[m[1]]
		switch {
		case !ok:
			t.Errorf("there is no %s", m[1])
		case m[2] != "" && !strings.Contains(text, strconv.Quote(m[2])):
			t.Errorf("%s has no case %q", m[1], m[2])
		}
	}
}

// row is a line of a table, and cell what the last of its columns holds.
var row = regexp.MustCompile(`(?m)^\| (.+?) \|.*\| ?(.*?) ?\|$`)

// TestReliability_AnswersEveryErrorAndReport: an error of the brokers and a report are answered by a test, or by a sentence that says
// why it cannot happen.
func TestReliability_AnswersEveryErrorAndReport(t *testing.T) {
	t.Parallel()
	_, doc, ok := strings.Cut(read(t, "docs/reliability.md"), "## Errors of the brokers")
	if !ok {
		t.Fatal("there is no such section")
	}
	reports := 0
	for _, m := range row.FindAllStringSubmatch(doc, -1) {
		if m[1] == "report" || m[1] == "error" || strings.HasPrefix(m[1], "---") {
			continue
		}
		reports++
		if m[2] == "" || !strings.Contains(m[2], "`") && !strings.Contains(m[2], "cannot happen") {
			t.Errorf("%s is not answered: %q", m[1], m[2])
		}
	}
	if reports < 75 {
		t.Errorf("%d rows of reports, want more", reports)
	}
}

// client is the version of franz-go in go.mod.
var client = regexp.MustCompile(`(?m)^\s*github.com/twmb/franz-go v1\.(\d+)\.(\d+)$`)

// TestReliability_UsesAClientWithoutKnownFaults: until v1.22.1 an idempotent producer could take a batch for written that was not.
func TestReliability_UsesAClientWithoutKnownFaults(t *testing.T) {
	t.Parallel()
	m := client.FindStringSubmatch(read(t, "go.mod"))
	if m == nil {
		t.Fatal("go.mod does not name the client")
	}
	minor, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	patch, err := strconv.Atoi(m[2])
	if err != nil {
		t.Fatal(err)
	}
	if minor < 22 || minor == 22 && patch < 2 {
		t.Errorf("franz-go is v1.%d.%d, want at least v1.22.2", minor, patch)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
