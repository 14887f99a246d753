package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

const dlqTopic = "dlq"

// counter is a deployment whose agents pay once and then answer. A payment does not return before its worker stops, unless the
// counter is open.
type counter struct {
	*bubble

	paid   chan struct{}
	open   atomic.Bool
	script string
}

func newCounter(t *testing.T, agents ...string) *counter {
	t.Helper()
	c := &counter{paid: make(chan struct{}, 8), script: filepath.Join(t.TempDir(), "script.yaml")}
	must(t, os.WriteFile(c.script, []byte("version: 1\nscenarios:\n  - steps:\n      - text: I pay.\n        calls: [{name: pay, arguments: {query: now}}]\n      - text: Paid.\n"), 0o600))
	c.bubble = newBubble(t, twoProviders, nil)
	c.tools = []tools.Tool{tools.Define("pay", func(tc *tools.Context, _ testQuery) (testFound, error) {
		c.paid <- struct{}{}
		if c.open.Load() {
			return testFound{"paid"}, nil
		}
		<-tc.Done()
		return testFound{}, tc.Err()
	}, tools.Options{Description: "Pays.", Effect: schemas.EffectWrite})}
	c.deploy(agents...)
	return c
}

// deploy gives the next worker a manifest with these agents.
func (c *counter) deploy(agents ...string) {
	c.t.Helper()
	var m strings.Builder
	m.WriteString("version: 1\nagents:\n")
	for _, name := range agents {
		fmt.Fprintf(&m, "  %s: {model: main, system: You pay., tools: [pay]}\n", name)
	}
	fmt.Fprintf(&m, "models:\n  main: {provider: scripted, model: m, script: %q}\n", c.script)
	c.bind(m.String(), nil)
}

// killedWhilePaying sends a turn and kills its worker when the turn's call has begun.
func (c *counter) killedWhilePaying(ev *schemas.TurnEvent) {
	c.t.Helper()
	c.killedWhile(func() { c.send(ev) })
}

// killedWhile is the same for a turn that is sent in some other way.
func (c *counter) killedWhile(send func()) {
	c.t.Helper()
	w := c.start()
	send()
	<-c.paid
	w.StopNow()
	_ = w.stop() // It says that it was stopped.
}

// handled waits until the offsets of all turn events are done.
func (c *counter) handled() {
	c.t.Helper()
	adm := kadm.NewClient(c.client)
	c.until("all offsets are done", func() bool {
		ends, err := adm.ListEndOffsets(c.t.Context(), "turns")
		must(c.t, err)
		committed, err := adm.FetchOffsets(c.t.Context(), "app")
		must(c.t, err)
		all := true
		ends.Each(func(o kadm.ListedOffset) {
			at, found := committed.Lookup("turns", o.Partition)
			all = all && (o.Offset == 0 || found && at.At == o.Offset)
		})
		return all
	})
}

// committed reads what is committed on some topics. A fetch that was sent before it was known where a partition begins keeps those that
// would have records waiting, so it must not be a long one.
func (c *counter) committed(each func(*kgo.Record), topics ...string) {
	c.t.Helper()
	cl := c.connect(kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		c.fetch(cl, each)
	}
}

// wantOutputs checks how many events of each type there are, dead letters by their reason.
func (c *counter) wantOutputs(want map[string]int) {
	c.t.Helper()
	got := make(map[string]int)
	c.committed(func(r *kgo.Record) {
		if r.Topic == dlqTopic {
			for _, h := range r.Headers {
				if h.Key == "lathe_reason" {
					got["dead letter "+string(h.Value)]++
				}
			}
			return
		}
		var ev struct {
			Type string `json:"type"`
		}
		must(c.t, json.Unmarshal(r.Value, &ev))
		got[ev.Type]++
	}, dlqTopic, "tool-events", "turn-events")
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

// once is what a turn emits whose only call was in doubt when it was resumed.
func once() map[string]int {
	return map[string]int{schemas.TypeTurnStart: 1, schemas.TypeTurnStep: 1, schemas.TypeToolStart: 1, schemas.TypeToolResult: 1, schemas.TypeTurnEnd: 1}
}

// A turn under way whose agent a new manifest lacks stays as it is: its partition halts and says what to do, and when that is done
// the turn ends. Its record is no dead letter.
func TestAgentGone_HaltsATurnUnderWayUntilTheAgentIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, "clerk", "other")
		c.killedWhilePaying(turnOf("clerk", "t", "s"))
		c.deploy("other")
		w := c.launch()
		fault := ""
		c.until("the partition halts", func() bool {
			for _, p := range w.Status().Partitions {
				if p.Fault != "" {
					fault = p.Fault
				}
			}
			return fault != ""
		})
		if !strings.Contains(fault, `"clerk"`) || !strings.Contains(fault, "put it back") {
			t.Errorf("the partition halts because: %s", fault)
		}
		_ = w.stop() // It says that a partition was halted.
		underWay := once()
		delete(underWay, schemas.TypeToolResult)
		delete(underWay, schemas.TypeTurnEnd)
		c.wantOutputs(underWay)
		c.deploy("other", "clerk")
		c.start()
		c.handled()
		c.wantOutputs(once())
	})
}

// A turn that left it open which agent it wants has one since it was accepted, however many there are by now.
func TestAgentGone_ATurnWithoutANameKeepsTheAgentThatItBeganWith(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, "clerk")
		c.killedWhilePaying(turnOf("", "t", "s"))
		c.deploy("clerk", "other")
		c.start()
		c.handled()
		c.wantOutputs(once())
		want := once()
		want["dead letter unknown_agent"], want[schemas.TypeTurnRejected] = 1, 1
		c.send(turnOf("", "new", "s")) // Which has none.
		c.handled()
		c.wantOutputs(want)
	})
}

// The repeat of a turn that has ended needs no agent.
func TestAgentGone_ARepeatOfAnEndedTurnEmitsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, "clerk")
		c.open.Store(true)
		w := c.start()
		c.send(turnOf("clerk", "t", "s"))
		c.handled()
		must(t, w.stop())
		want := once()
		want[schemas.TypeTurnStep] = 2
		c.wantOutputs(want)
		c.deploy("other")
		c.start()
		c.send(turnOf("clerk", "t", "s"))
		c.handled()
		c.wantOutputs(want)
		other := turnOf("clerk", "t", "s")
		other.Messages[0].Text = "something else"
		c.send(other, turnOf("clerk", "new", "s"))
		c.handled()
		want["dead letter unknown_agent"], want[schemas.TypeTurnRejected] = 2, 2
		c.wantOutputs(want)
	})
}

// Where a turn belongs may be seen differently by now: one that has begun goes on where it is.
func TestPartitionerChanged_ATurnUnderWayEndsWhereItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const session = "ann" // The two partitioners disagree about it.
		c := newCounter(t, "clerk")
		c.killedWhilePaying(turnOf("clerk", "t", session))
		c.partitioner = consumer.PartitionerCRC32
		c.start()
		c.handled()
		c.wantOutputs(once())
		want := once()
		want["dead letter partition_mismatch"], want[schemas.TypeTurnRejected] = 2, 2
		other := turnOf("clerk", "t", session)
		other.Messages[0].Text = "something else"
		c.send(turnOf("clerk", "t", session), turnOf("clerk", "new", session), other) // The first is a repeat.
		c.handled()
		c.wantOutputs(want)
	})
}
