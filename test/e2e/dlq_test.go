package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// TestDeadLetters_AreReplayedUnderTheirTurnOnceTheCauseIsGone sends records that a worker refuses, mends what can be mended (an
// agent that the manifest lacked, keys), and replays: those turns complete under their ids, and a second replay emits nothing.
func TestDeadLetters_AreReplayedUnderTheirTurnOnceTheCauseIsGone(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	first := b.start("w-0")
	r := b.reader()
	b.send("hello-1", "ann")
	value := func(id, session string, change func(*schemas.TurnEvent)) []byte {
		ev, _ := turn(id, session)
		change(ev)
		raw, err := json.Marshal(ev)
		b.must(err)
		return raw
	}
	named := func(ev *schemas.TurnEvent) { ev.Agent = "main" } // With a second agent the manifest has no only one any more.
	late := func(ev *schemas.TurnEvent) { ev.Agent = "late" }
	ann, ben := partitionOf("ann"), partitionOf("ben")
	b.sendBad("an unknown agent", &kgo.Record{
		Key: []byte("ben"), Value: value("hello-late", "ben", late), Partition: ben, Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte("x")}},
	}, "unknown_agent")
	b.sendBad("broken JSON", &kgo.Record{Key: []byte("ann"), Value: []byte(`{"turn_id":`), Partition: ann}, "undecodable")
	b.sendBad("another's key", &kgo.Record{Key: []byte("ben"), Value: value("hello-key", "cleo", named), Partition: ben}, "key_mismatch")
	b.sendBad("no key", &kgo.Record{Value: value("hello-none", "dan", named), Partition: ann}, "key_mismatch")
	b.sendBad("a conflict", &kgo.Record{
		Key: []byte("ann"), Value: value("hello-1", "ann", func(ev *schemas.TurnEvent) { ev.Messages[0].Text = "something else" }), Partition: ann,
	}, "conflict")
	r.allEnded()
	b.awaitCommitted()
	b.wantLetters(5)

	b.write("lathe.yaml", strings.Replace(manifest, "\nmodels:", "\n  late: {model: script}\nmodels:", 1))
	first.drain()
	second := b.start("w-0").ready()
	plan := b.dlq("replay")
	if n := strings.Count(plan, "would be sent"); n != 2 { // The letter's line and the summary.
		t.Errorf("the plan has %d of 2 lines:\n%s", n, plan)
	}
	if code, out, errs := b.command("", "dlq", "replay", "--yes", "--rekey"); code != 1 || strings.Count(out, " sent  ") != 5 {
		t.Errorf("replay ended with %d:\n%s%s", code, out, errs)
	}
	b.sent = append(b.sent, sentTurn{id: "hello-late", session: "ben"}, sentTurn{id: "hello-key", session: "cleo"}, sentTurn{id: "hello-none", session: "dan"})
	r.allEnded()
	b.awaitCommitted()
	r.toEnd()
	events, letters := len(r.outputs), len(r.letters)
	b.dlq("replay", "--reason", "unknown_agent,key_mismatch", "--rekey", "--yes")
	b.awaitCommitted()
	second.drain()
	r.check()
	if len(r.outputs) != events || len(r.letters) != letters {
		t.Errorf("replayed again: %d events and %d dead letters, want %d and %d", len(r.outputs), len(r.letters), events, letters)
	}
	if got := len(r.events("hello-late")); got != 3 {
		t.Errorf("the replayed turn has %d events, want 3", got)
	}
}

// dlq runs a command on dead letters and returns what it printed.
func (b *bed) dlq(args ...string) string {
	b.Helper()
	code, out, errs := b.command("", append([]string{"dlq"}, args...)...)
	b.wantCommand(fmt.Sprintf("dlq %v", args), code, 0, out, errs)
	return out
}

// wantLetters lists and shows all dead letters.
func (b *bed) wantLetters(n int) {
	b.Helper()
	lines := strings.Split(strings.TrimSpace(b.dlq("list")), "\n")
	if len(lines) != n {
		b.Errorf("%d dead letters are listed, want %d:\n%s", len(lines), n, strings.Join(lines, "\n"))
	}
	for _, line := range lines {
		fields := strings.Fields(line)
		out := b.dlq("show", fields[0])
		if !strings.Contains(out, fields[2]) || !strings.Contains(out, "What to do") {
			b.Errorf("dlq show %s:\n%s", fields[0], out)
		}
	}
}
