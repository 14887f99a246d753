package e2e_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/schemas"
)

// command runs a command of the worker to its end and returns its exit status and what it wrote.
func (b *bed) command(stdin string, args ...string) (code int, stdout, stderr string) {
	b.Helper()
	var out, errs strings.Builder
	cmd := exec.CommandContext(b.ctx, os.Args[0], args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = b.environ(nil), strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		b.Fatalf("run worker %v: %v", args, err)
	}
	for _, text := range []string{out.String(), errs.String()} {
		if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
			b.Errorf("worker %v:\n%s", args, text)
		}
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// gatedManifest binds a gated tool in every form that there is, in code and in the manifest.
const gatedManifest = `version: 1
agents:
  code:
    model: script
    tools: [approve_always, approve_when, approve_func, approve_timeout]
  manifest:
    model: script
    tools: [look, pay, save, deploy]
models:
  script: {provider: scripted, script: script.yaml}
tools:
  pay: {requires_approval: true}
  save: {requires_approval: "args.n > 100"}
  deploy: {approval_timeout: 1m}
`

func TestGatedTools_RefuseTheStartWithEveryFaultListed(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	b.write("lathe.yaml", gatedManifest)
	for _, command := range []string{"run", "check"} {
		code, _, stderr := b.command("", command)
		if code != 2 {
			t.Errorf("worker %s: exit status %d, want 2\n%s", command, code, stderr)
		}
		for _, fault := range []string{
			"agent code, tool approve_always", "agent code, tool approve_when", "agent code, tool approve_func", "agent code, tool approve_timeout",
			"agent manifest, tool pay", "agent manifest, tool save", "agent manifest, tool deploy",
		} {
			if !strings.Contains(stderr, fault) {
				t.Errorf("worker %s does not name %q:\n%s", command, fault, stderr)
			}
		}
		if strings.Contains(stderr, "tool look") {
			t.Errorf("worker %s finds a fault in a tool without a gate:\n%s", command, stderr)
		}
	}
	if topics, err := b.adm.ListTopics(b.ctx, b.topic("turn-events")); err == nil && topics.Has(b.topic("turn-events")) && topics[b.topic("turn-events")].Err == nil {
		t.Error("the worker made topics although it refused to start")
	}
}

func TestGatedTools_ATurnThatNamesOneFailsAndTheNextCompletes(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	w := b.start("w-0")
	r := b.reader()
	for i, tool := range []string{"approve_always", "approve_when", "approve_func", "approve_timeout", "no_such_tool"} {
		id := "read-gated-" + tool
		ev, expected := turn(id, "ann", schemas.StatusFailed)
		ev.Tools = []string{"look", tool}
		b.sendEvent(ev)
		b.sent = append(b.sent, expected)
		b.send("read-next-"+string(rune('a'+i)), "ann")
	}
	r.allEnded()
	b.awaitCommitted()
	w.drain()
	r.check()
	for _, s := range b.sent {
		if end := r.end(s.id); len(s.may) > 0 && end.Code != schemas.CodeToolRegistration {
			t.Errorf("turn %s ended with %s (%s), want tool_registration", s.id, end.Code, end.Message)
		}
	}
}
