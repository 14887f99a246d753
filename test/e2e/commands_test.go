package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/schemas"
)

// TestCommands_ReadAndWriteAsPeopleAndPipesDo sends turns with submit, follows them with --wait and tail, and looks at the exit
// statuses.
func TestCommands_ReadAndWriteAsPeopleAndPipesDo(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	w := b.start("w-0").ready()
	r := b.reader()

	code, out, errs := b.command("", "submit", "--message", "hi", "--turn", "hello-1", "--session", "ann", "--wait")
	b.sent = append(b.sent, sentTurn{id: "hello-1", session: "ann"})
	b.wantCommand("submit --wait", code, 0, out, errs, "turn:start", "turn:step", "turn:end", "hello hi")

	two := `{"turn_id":"read-2","session_id":"ann","messages":[{"role":"user","content":"x"}]}
		{"turn_id":"steps-1","session_id":"ben","messages":[{"role":"user","content":"x"}]}`
	code, out, errs = b.command(two, "submit", "--encoding", "avro-single", "--wait", "--json")
	b.sent = append(b.sent, sentTurn{id: "read-2", session: "ann"}, sentTurn{"steps-1", "ben", []string{schemas.StatusFailed}})
	b.wantCommand("submit --wait of a turn that fails", code, 1, out, errs, "tool:start", "tool:result")
	b.wantJSONLines(out)
	if !strings.Contains(errs, "steps-1 failed") {
		t.Errorf("submit says %q of the failed turn", errs)
	}
	code, out, errs = b.command("", "tail", "--json", "--from-start", "--turn", "read-2")
	b.wantCommand("tail", code, 0, out, errs, `"turn:end"`)
	if got, want := b.wantJSONLines(out), len(r.eventsOf("read-2")); got != want {
		t.Errorf("tail shows %d events of the turn, want %d", got, want)
	}
	code, out, errs = b.command("", "tail", "--from-start", "--turn", "hello-1")
	b.wantCommand("tail for people", code, 0, out, errs, "hello-1", "completed")
	if strings.Contains(out, "\x1b") {
		t.Error("piped output has colours")
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"tools", "--format", "openai"}, 0, `"function"`},
		{[]string{"tools", "--format", "anthropic"}, 0, `"input_schema"`},
		{[]string{"tools", "--format", "mcp"}, 0, `"inputSchema"`},
		{[]string{"tools", "--format", "morse"}, 2, ""},
		{[]string{"tools", "--agent", "nobody"}, 2, ""},
		{[]string{"version"}, 0, "e2e"},
		{[]string{"check"}, 0, "ok"},
		{[]string{"submit", "no-such-file"}, 2, ""},
		{[]string{"run", "--no-such-flag"}, 2, ""},
		{[]string{"no-such-command"}, 2, ""},
	} {
		code, out, errs := b.command("", tc.args...)
		b.wantCommand(strings.Join(tc.args, " "), code, tc.code, out, errs, tc.want)
		if code != 0 && (out != "" || errs == "") {
			t.Errorf("worker %v failed with %q on its output and %q on its errors", tc.args, out, errs)
		}
	}
	w.drain()
	r.check()
}

func (b *bed) wantCommand(what string, code, want int, out, errs string, texts ...string) {
	b.Helper()
	if code != want {
		b.Errorf("worker %s: exit status %d, want %d\n%s%s", what, code, want, out, errs)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			b.Errorf("worker %s does not print %q:\n%s%s", what, text, out, errs)
		}
	}
}

// wantJSONLines counts the lines, each of which must be JSON.
func (b *bed) wantJSONLines(out string) int {
	b.Helper()
	n := 0
	for line := range strings.Lines(out) {
		n++
		if !json.Valid([]byte(line)) {
			b.Errorf("no line of JSON: %q", line)
		}
	}
	return n
}

// eventsOf reads on until the turn has ended and returns its events.
func (r *reader) eventsOf(turn string) []output {
	r.Helper()
	r.toEnd()
	return r.events(turn)
}

// TestSettings_WrongOnesRefuseTheStart names what is wrong, all at once, and shows no secret.
func TestSettings_WrongOnesRefuseTheStart(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.settings["LATHE_GROUP_PROTOCOL"] = "pigeon"
	b.settings["LATHE_MAX_INFLIGHT"] = "1"
	b.settings["LATHE_SASL_PASSWORD"] = "hunter2"
	code, out, errs := b.command("", "run")
	b.wantCommand("run", code, 2, out, errs)
	for _, want := range []string{"LATHE_GROUP_PROTOCOL", "LATHE_MAX_IN_FLIGHT", "LATHE_SASL_MECHANISM"} {
		if !strings.Contains(errs, want) {
			t.Errorf("worker run does not name %s:\n%s", want, errs)
		}
	}
	if strings.Contains(errs, "hunter2") {
		t.Errorf("worker run shows a secret:\n%s", errs)
	}
}

// TestNoTurnsTopic_SaysHowToMakeIt starts a worker without its input.
func TestNoTurnsTopic_SaysHowToMakeIt(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	code, out, errs := b.command("", "run")
	b.wantCommand("run", code, 1, out, errs)
	if !strings.Contains(errs, b.topic("turns")) || !strings.Contains(errs, "--create") {
		t.Errorf("worker run does not say how to create the topic:\n%s", errs)
	}
}
