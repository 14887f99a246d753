package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// TestReplay_EmitsNothingAndRunsNothing sends all turns again, several times over, and sets the group's offsets back to
// the beginning: the events and the ledger stay as they are.
func TestReplay_EmitsNothingAndRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	b.sendMixed()
	b.sendAgain()
	dynamic := "LATHE_INSTANCE_ID=" // It leaves the group at once, so that the offsets can be set back.
	first := b.start("w-0", dynamic)
	r := b.reader()
	r.allEnded()
	first.drain()
	r.toEnd()
	events, calls := len(r.outputs), len(b.ledger())

	b.resetOffsets()
	second := b.start("w-0", dynamic).ready()
	b.sendAgain()
	b.sendAgain()
	b.awaitCommitted()
	second.drain()
	r.check()
	if len(r.outputs) != events || len(b.ledger()) != calls {
		t.Errorf("after the replay: %d events and %d lines in the ledger, want %d and %d", len(r.outputs), len(b.ledger()), events, calls)
	}
}

// resetOffsets sets the offsets of the group to the beginning, as an operator might.
func (b *bed) resetOffsets() {
	b.Helper()
	zero := make(kadm.Offsets)
	for p := range int32(turnPartitions) {
		zero.AddOffset(b.topic("turns"), p, 0, -1)
	}
	b.eventually("the group is empty and its offsets are set back", func() bool {
		resp, err := b.adm.CommitOffsets(b.ctx, b.app, zero)
		return err == nil && resp.Ok()
	})
}

// TestConflict_IsADeadLetterAndTheTurnStands sends other turns under ids that are taken, by a turn that runs and by one that has
// ended.
func TestConflict_IsADeadLetterAndTheTurnStands(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	b.send("hello-1", "ann")
	b.send("wait-1", "ben")
	w := b.start("w-0")
	r := b.reader()
	b.awaitBegun("wait-1/0/0")
	b.sendConflict("wait-1", "ben")
	b.sendConflict("hello-1", "ann")
	b.release("wait-1")
	b.send("hello-2", "ann")
	b.send("read-2", "ben")
	r.allEnded()
	b.awaitCommitted()
	w.drain()
	r.check()
	for _, id := range []string{"wait-1", "hello-1"} {
		if n := r.count(id, schemas.TypeTurnRejected); n != 1 {
			t.Errorf("turn %s: %d turn:rejected for its conflict, want 1", id, n)
		}
	}
}

// sendConflict sends another payload under an id that is taken.
func (b *bed) sendConflict(id, session string) {
	b.Helper()
	ev, _ := turn(id, session)
	ev.Messages[0].Text = "something else"
	value, err := json.Marshal(ev)
	b.must(err)
	b.sendBad("a conflict with "+id, &kgo.Record{Key: []byte(session), Value: value, Partition: partitionOf(session)}, "conflict")
}
