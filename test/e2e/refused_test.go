package e2e_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/world"
	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

const (
	// lowered is what a topic takes after an operator has lowered it, bulk what does not fit.
	lowered = 30_000
	bulk    = 60_000
)

// bulkScript has turns that say much, and turns whose tools do.
func bulkScript() string {
	return script + fmt.Sprintf(`  - name: large
    match: {turn: large-}
    steps: [{text: %q}]
  - name: fetch
    match: {turn: fetch-}
    steps:
      - calls: [{name: look, arguments: {n: 1}}, {name: bulk_read, arguments: {n: %d}}]
      - text: fetched
  - name: export
    match: {turn: export-}
    steps:
      - calls: [{name: pay, arguments: {n: 1}}]
      - calls: [{name: bulk_pay, arguments: {n: %[2]d}}]
      - text: exported
`, world.Noise(bulk), bulk)
}

// bulkTurns prepares for turns of bulkScript.
func (b *bed) bulkTurns() {
	b.Helper()
	b.createTurns()
	b.write("script.yaml", bulkScript())
	b.write("lathe.yaml", strings.Replace(manifest, "tools: [", "tools: [bulk_read, bulk_pay, ", 1))
}

// lowerMax sets max.message.bytes of a topic as an operator may while workers run, and returns when the brokers have it.
func (b *bed) lowerMax(topic string, bytes int) {
	b.Helper()
	b.must(kafkatest.SetConfig(b.ctx, b.adm, topic, "max.message.bytes", strconv.Itoa(bytes)))
}

// TestOperator_LowersWhatATopicTakes while turns run that write more. Each of them ends with the code of a limit, at most once per
// tool and with its calls closed; those that go before and after them in their sessions, and all others, end as they would.
func TestOperator_LowersWhatATopicTakes(t *testing.T) {
	t.Parallel()
	failed := []string{schemas.StatusFailed}
	unknown := []string{schemas.StatusOutcomeUnknown}
	for _, tc := range []struct {
		topic func(b *bed) string
		name  string
		// large, fetch and export are how those turns may end; nil is as ever.
		large, fetch, export []string
	}{
		{name: "turn-events", topic: func(b *bed) string { return b.topic("turn-events") }, large: failed},
		{name: "tool-events", topic: func(b *bed) string { return b.topic("tool-events") }, fetch: failed, export: unknown},
		{name: "changelog", topic: (*bed).changelog, large: failed, fetch: failed, export: unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.bulkTurns()
			w := b.start("w-0")
			r := b.reader()
			b.send("hello-first", "ann")
			r.allEnded()
			b.lowerMax(tc.topic(b), lowered)
			for i := range 3 {
				session := fmt.Sprintf("session-%d", i)
				b.send(fmt.Sprintf("hello-%d", i), session)
				b.send(fmt.Sprintf("large-%d", i), session, tc.large...)
				b.send(fmt.Sprintf("read-%d", i), session)
				b.send(fmt.Sprintf("fetch-%d", i), session, tc.fetch...)
				b.send(fmt.Sprintf("write-%d", i), session)
				b.send(fmt.Sprintf("export-%d", i), session, tc.export...)
				b.send(fmt.Sprintf("both-%d", i), session)
			}
			for i := range 40 {
				b.send(fmt.Sprintf("read-x%d", i), fmt.Sprintf("other-%d", i))
			}
			r.allEnded()
			b.awaitCommitted()
			w.drain()
			r.check()
			for _, s := range b.sent {
				if end := r.end(s.id); len(s.may) > 0 && (!r.refused(s.id) || !strings.Contains(end.Message, tc.topic(b))) {
					t.Errorf("turn %s ended %s: %s: %s", s.id, end.Status, end.Code, end.Message)
				}
			}
			b.lowerMax(tc.topic(b), 1<<20) // Else the worker says at its start that the topic's limit is too low.
			b.resumesFrom(r, "w-1")
		})
	}
}

// TestOperator_LowersWhatATopicTakes_AndTheWorkerIsKilled kills the worker at moments of doing without what the broker refuses; then
// the operator sets the limit back. What had not ended by then ends as it would have, and nothing runs or is said twice.
func TestOperator_LowersWhatATopicTakes_AndTheWorkerIsKilled(t *testing.T) {
	t.Parallel()
	ends := []string{schemas.StatusCompleted, schemas.StatusFailed}
	for _, point := range []string{"before:abort:1", "after:abort:1", "after:abort:2", "before:abort:3"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.bulkTurns()
			w := b.start("w-0")
			r := b.reader()
			b.send("hello-first", "ann")
			r.allEnded()
			w.drain()
			w = b.start("w-0", envSignals+"=kill:"+point).ready()
			b.lowerMax(b.changelog(), lowered)
			for i := range 6 {
				session := fmt.Sprintf("session-%d", i)
				b.send(fmt.Sprintf("large-%d", i), session, ends...)
				b.send(fmt.Sprintf("fetch-%d", i), session, ends...)
				b.send(fmt.Sprintf("read-%d", i), session)
			}
			w.awaitKilled()
			b.lowerMax(b.changelog(), 1<<20)
			b.resumesFrom(r, "w-0")
		})
	}
}

// refused reports whether a turn has ended because the broker refused a record of it.
func (r *reader) refused(turn string) bool {
	r.Helper()
	end := r.end(turn)
	return end.Code == schemas.CodeLimitExceeded && strings.Contains(end.Message, "the broker refuses a record")
}

// resumesFrom lets a worker go on, a new one from the changelog alone: what was dropped is nowhere.
func (b *bed) resumesFrom(r *reader, instance string) {
	b.Helper()
	w := b.start(instance)
	b.send("hello-again", "session-0")
	b.sendAgain()
	r.allEnded()
	b.awaitCommitted()
	w.drain()
	r.check()
}

// TestOperator_LowersWhatATopicTakesBelowAStart makes turns that cannot even begin, since their metadata is in every event: they are
// dead letters, and who waits for them is told without it.
func TestOperator_LowersWhatATopicTakesBelowAStart(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	w := b.start("w-0")
	r := b.reader()
	b.send("hello-first", "ann")
	r.allEnded()
	b.lowerMax(b.topic("turn-events"), 4000)
	b.send("hello-1", "ann")
	ev, _ := turn("hello-refused", "ann")
	ev.Metadata = map[string]string{"note": world.Noise(3900)}
	value, err := json.Marshal(ev)
	b.must(err)
	b.sendBad("a turn whose start does not fit", &kgo.Record{Key: []byte("ann"), Value: value, Partition: partitionOf("ann")}, string(schemas.CodeTooLarge))
	b.send("hello-2", "ann")
	r.allEnded()
	b.awaitCommitted()
	w.drain()
	r.check()
	for _, o := range r.outputs {
		if o.env.TurnID == "hello-refused" && (o.env.Type != schemas.TypeTurnRejected || o.Turn.Code != schemas.CodeTooLarge || o.env.Metadata != nil) {
			t.Errorf("the refused turn has the event %s with code %s and metadata %v", o.env.EventID, o.Turn.Code, o.env.Metadata)
		}
	}
}
