package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// TestOracle_SeesEachBrokenPromise spoils what a flawless run left behind, in one way after another, and expects the oracle to
// find it.
func TestOracle_SeesEachBrokenPromise(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	b.sendMixed()
	b.send("hello-2", "dan")
	w := b.start("w-0")
	r := b.reader()
	r.allEnded()
	b.awaitCommitted()
	w.drain()
	r.check()
	for _, tc := range []struct { //nolint:paralleltest // They spoil the same ledger, one more each time.
		name  string
		spoil func(r *reader)
		want  string
	}{
		{"an event twice", func(r *reader) { r.outputs = append(r.outputs, r.outputs[0]) }, "emitted twice"},
		{"an event lost", func(r *reader) { r.drop(schemas.TypeToolResult) }, "has seq"},
		{"an event before its start", func(r *reader) { r.swap("hello-1") }, "stands before an earlier one"},
		{"a turn lost", func(r *reader) { r.drop(schemas.TypeTurnEnd) }, "have no end"},
		{"a turn of nobody", func(r *reader) { r.sent = slices.Clone(r.sent)[1:] }, "belongs to no turn"},
		{"another status", func(r *reader) { r.sent = slices.Clone(r.sent); r.sent[0].may = []string{schemas.StatusFailed} }, "ended completed"},
		{"a session out of order", func(r *reader) { r.sent = slices.Clone(r.sent); slices.Reverse(r.sent) }, "ran ["},
		{"a dead letter too many", func(r *reader) { r.letters = append(r.letters, &kgo.Record{}) }, "was not expected"},
		{"a dead letter missing", func(r *reader) { r.dead = append(r.dead, deadLetter{what: "a record"}) }, "no dead letter"},
		{"a journal left", func(r *reader) { r.state = append(r.state, &kgo.Record{Key: []byte("jx"), Value: []byte{1}}) }, "still has the journal"},
		{"a turn forgotten", func(r *reader) { r.state = append(r.state, &kgo.Record{Key: []byte("thello-1")}) }, "no record of turn hello-1"},
		{"an offset behind", func(r *reader) { r.sendAgain() }, "committed offset"},
		{"a call that ran twice", func(r *reader) { r.forge("pay", "write-1/0/0") }, "ran 2 times"},
		{"a call of nobody", func(r *reader) { r.forge("pay", "write-9/0/0") }, "without a tool:start"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			deployment, faults := *r.bed, []string{}
			deployment.T = t
			spoilt := *r
			spoilt.bed, spoilt.faults, spoilt.outputs = &deployment, &faults, slices.Clone(r.outputs)
			tc.spoil(&spoilt)
			spoilt.check()
			if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, tc.want) }) {
				t.Errorf("the oracle found %q, want one that says %q", faults, tc.want)
			}
		})
	}
}

// drop loses the first event of a type.
func (r *reader) drop(typ string) {
	i := slices.IndexFunc(r.outputs, func(o output) bool { return o.env.Type == typ })
	r.outputs = slices.Delete(r.outputs, i, i+1)
}

// swap exchanges the places in the log of a turn's first and last event.
func (r *reader) swap(turn string) {
	i := slices.IndexFunc(r.outputs, func(o output) bool { return o.env.TurnID == turn && o.env.Type == schemas.TypeTurnStart })
	k := slices.IndexFunc(r.outputs, func(o output) bool { return o.env.TurnID == turn && o.env.Type == schemas.TypeTurnEnd })
	first, last := *r.outputs[i].rec, *r.outputs[k].rec
	first.Offset, last.Offset = last.Offset, first.Offset
	r.outputs[i].rec, r.outputs[k].rec = &first, &last
}

// forge writes a call into the ledger that no worker made.
func (r *reader) forge(tool, key string) {
	r.Helper()
	f, err := os.OpenFile(filepath.Join(r.dir, "ledger"), os.O_APPEND|os.O_WRONLY, 0o600)
	r.must(err)
	_, err = fmt.Fprintf(f, "1 1 begin %s %s\n", tool, key)
	r.must(err)
	r.must(f.Close())
}
