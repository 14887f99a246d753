package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// lowerMax sets max.message.bytes of a topic while the worker runs, as an operator may.
func (b *bed) lowerMax(topic string, bytes int) {
	b.t.Helper()
	must(b.t, kafkatest.SetConfig(b.t.Context(), b.admin, topic, "max.message.bytes", strconv.Itoa(bytes)))
}

// noise does not compress.
func noise(n int) []byte {
	out := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range out {
		out[i] = byte('a' + r.IntN(26))
	}
	return out
}

// mender is an echo whose refused turns end with a short output; later turns of their session are handled again.
type mender struct {
	*echo

	mu      sync.Mutex
	refused []*Refusal
	fail    error
	// during is called while a refusal is mended.
	during func()
}

func (m *mender) Open(ctx context.Context, a *Assignment) (PartitionHandler, error) {
	p, err := m.echo.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &menderPartition{echoPartition: p.(*echoPartition), mender: m}, nil
}

type menderPartition struct {
	*echoPartition

	mender *mender
}

func (p *menderPartition) Refused(_ context.Context, r *Refusal) ([]Task, error) {
	p.mender.mu.Lock()
	p.mender.refused = append(p.mender.refused, r)
	p.mender.mu.Unlock()
	if p.mender.during != nil {
		p.mender.during()
	}
	bad := r.Effect.Owner.(*echoed)
	var later []any
	for _, o := range p.a.State.Owners() {
		if e, ok := o.(*echoed); ok && e.session == bad.session && (e.rec == bad.rec || len(later) > 0) {
			later = append(later, e)
		}
	}
	var tasks []Task
	seen := map[*Record]bool{}
	for _, e := range p.a.State.Drop(later...) {
		rec := e.Owner.(*echoed).rec
		if seen[rec] {
			continue
		}
		seen[rec] = true
		if rec == bad.rec {
			tasks = append(tasks, Task{LaneKey: bad.session, Record: rec, Run: func(context.Context) error { return p.short(rec) }})
			continue
		}
		tasks = append(tasks, Task{LaneKey: bad.session, Record: rec, Run: func(ctx context.Context) error { return p.Handle(ctx, rec) }})
	}
	return tasks, p.mender.fail
}

func (p *menderPartition) short(rec *Record) error {
	return p.add(&statestore.Effect{
		Owner:   &echoed{session: rec.Event.SessionID, rec: rec},
		Outputs: []statestore.Output{{Topic: p.topic, Key: rec.Key, Value: []byte(rec.Event.TurnID + " refused"), Partition: -1}},
		Offset:  rec.Offset, Urgent: true,
	})
}

func (m *mender) all() []*Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.refused)
}

// large turns have a large output.
func large(n int) func(rec *Record) []byte {
	return func(rec *Record) []byte {
		if strings.HasPrefix(rec.Event.TurnID, "large") {
			return noise(n)
		}
		return nil
	}
}

func (m *mender) handles(s *setup) {
	m.topic = s.handler.topic
	s.deps.Handler = m
}

// refusesOne lets an operator lower what the output topic takes while turns wait for their commit: those that are too large end
// without their output, what has built upon them is done again, everything else is committed as it is.
func refusesOne(b *bed) {
	m := &mender{echo: &echo{value: large(30_000)}}
	hold := newHolding()
	p := b.start(m.handles, hold.cycles).running(bedPartitions)
	b.lowerMax(b.output.Name, 20_000)
	s, other := sessionOn(1, 1), sessionOn(2, 1)
	b.produce(turn(s, "before"), turn(s, "large-1"), turn(s, "after-1"), turn(s, "large-2"), turn(s, "after-2"), turn(other, "other"), turn(other, "large-3"))
	for i := range 200 {
		b.produce(turn(sessionOn(3, i), fmt.Sprintf("many-%d", i)))
	}
	b.eventually("all turns have run", func() bool { return len(m.runs()) == 207 })
	hold.release()
	b.handled()
	out := b.outputs()
	if diff := cmp.Diff([]string{"before 1", "large-1 refused", "after-1 2", "large-2 refused", "after-2 3"}, out[s]); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"other 1", "large-3 refused"}, out[other]); diff != "" {
		b.t.Errorf("outputs of the other session (-want +got):\n%s", diff)
	}
	if n := len(out); n != 202 {
		b.t.Errorf("outputs of %d sessions, want 202", n)
	}
	for _, r := range m.all() {
		if !r.TooLarge() || r.Topic != b.output.Name || r.Output == nil || r.Size < 30_000 || !strings.HasPrefix(r.Effect.Owner.(*echoed).rec.Event.TurnID, "large") {
			b.t.Errorf("refused: %v", r.Fault())
		}
	}
	p.end()
	p.stateIsTheChangelog()
}

// holding keeps cycles from beginning until it is released.
type holding struct {
	gate chan struct{}
	once sync.Once
}

func newHolding() *holding { return &holding{gate: make(chan struct{})} }

func (h *holding) release() { h.once.Do(func() { close(h.gate) }) }

// cycles lets the cycles pass that open the partitions, and holds those that have turns.
func (h *holding) cycles(s *setup) {
	turns := s.deps.Handler
	s.deps.Hooks.BeforeTake = func(ctx context.Context) {
		if m, ok := turns.(*mender); !ok || len(m.runs()) == 0 {
			return
		}
		select {
		case <-h.gate:
		case <-ctx.Done():
		}
	}
}

// refusesState lowers what the changelog takes: a record that was joined of what many turns have appended is split, and the one turn
// that alone is too large is refused.
func refusesState(b *bed) {
	b.lowerMax(b.changelog.Name, 4000)
	m := &mender{echo: &echo{}}
	m.on = func(_ context.Context, a *Assignment, rec *Record) error {
		if strings.HasPrefix(rec.Event.TurnID, "large") {
			return a.State.Add(&statestore.Effect{
				Owner: &echoed{session: rec.Event.SessionID, rec: rec}, Offset: statestore.NoOffset,
				Mutations: []statestore.Mutation{{Op: statestore.OpSet, Key: "large", Value: append([]byte{statestore.Format}, noise(9000)...)}},
			})
		}
		return a.State.Add(&statestore.Effect{Offset: statestore.NoOffset, Mutations: []statestore.Mutation{{
			Op: statestore.OpAppend, Key: "log/" + rec.Event.SessionID, Value: noise(300 + len(rec.Event.TurnID)),
		}}})
	}
	hold := newHolding()
	p := b.start(m.handles, hold.cycles).running(bedPartitions)
	s := sessionOn(1, 1)
	var want []string
	for i := range 40 {
		b.produce(turn(s, fmt.Sprintf("small-%d", i)))
		want = append(want, fmt.Sprintf("small-%d %d", i, i+1))
	}
	b.produce(turn(sessionOn(2, 1), "large"))
	b.eventually("all turns have run", func() bool { return len(m.runs()) == 41 })
	hold.release()
	b.handled()
	if diff := cmp.Diff(want, b.outputs()[s]); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"large refused"}, b.outputs()[sessionOn(2, 1)]); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
	p.end()
	p.stateIsTheChangelog()
}

// refusesLetters lowers what the dead letter topic takes until only the place of a record fits.
func refusesLetters(b *bed) {
	p := b.start().running(bedPartitions)
	b.lowerMax(b.letters.Name, 3000)
	s := sessionOn(1, 1)
	bad := turn(s, "bad")
	bad.Value = append([]byte(`{"turn_id":"bad","session_id":"`+s+`","messages":[{"role":"nobody","content":"`), append(noise(40_000), `"}]}`...)...)
	b.produce(turn(s, "one"), bad, turn(s, "two"))
	b.handled()
	if diff := cmp.Diff([]string{"one 1", "rejected bad invalid_turn", "two 2"}, sortedBy(b.outputs()[s], "one", "rejected", "two")); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
	letters := b.read(b.letters.Name)
	if len(letters) != 1 {
		b.t.Fatalf("%d dead letters, want 1", len(letters))
	}
	own := map[string]string{}
	for _, h := range letters[0].Headers {
		own[h.Key] = string(h.Value)
	}
	if len(letters[0].Value) != 0 || own[headerOffset] != "1" || own[headerCut] != "true" || own[headerValueBytes] != strconv.Itoa(len(bad.Value)) || len(own[headerValueSHA256]) != 64 {
		b.t.Errorf("value of %d bytes, headers %v", len(letters[0].Value), own)
	}
	p.end()
}

// sortedBy brings outputs of one key, which lanes and dead letters may write in any order, into that of some prefixes.
func sortedBy(values []string, prefixes ...string) []string {
	place := func(v string) int {
		return slices.IndexFunc(prefixes, func(p string) bool { return strings.HasPrefix(v, p) })
	}
	slices.SortFunc(values, func(a, b string) int { return place(a) - place(b) })
	return values
}

// TestWorker_HaltsForARecordThatNothingCanMend tells the refusals that end in a halted partition: of a handler that cannot mend
// them, one that does not know how, a dead letter of which nothing is left to leave out. The others go on.
func TestWorker_HaltsForARecordThatNothingCanMend(t *testing.T) {
	t.Parallel()
	errStuck := errors.New("nothing is left to leave out")
	for _, tc := range []struct {
		name    string
		handler func(f *fake) Handler
		topic   func(f *fake) string
		record  func(s string) *kgo.Record
		want    string
	}{
		{
			"the handler does not mend", func(f *fake) Handler { return &echo{topic: f.output.Name} },
			func(f *fake) string { return f.output.Name }, func(s string) *kgo.Record { return turn(s, "large") }, "MESSAGE_TOO_LARGE",
		},
		{
			"the handler cannot", func(f *fake) Handler { return &mender{echo: &echo{topic: f.output.Name}, fail: errStuck} },
			func(f *fake) string { return f.output.Name }, func(s string) *kgo.Record { return turn(s, "large") }, errStuck.Error(),
		},
		{
			"a dead letter", func(f *fake) Handler { return &mender{echo: &echo{topic: f.output.Name}} },
			func(f *fake) string { return f.letters.Name },
			func(s string) *kgo.Record { r := turn(s, "bad"); r.Value = []byte("no JSON"); return r }, "dead letter of the record at offset 0",
		},
		{
			"the turn:rejected beside a dead letter", func(f *fake) Handler { return &mender{echo: &echo{topic: f.output.Name}} },
			func(f *fake) string { return f.output.Name },
			func(s string) *kgo.Record {
				r := turn(s, "bad")
				r.Value = fmt.Appendf(nil, `{"turn_id":"bad","session_id":%q,"messages":[]}`, s)
				return r
			}, "dead letter of the record at offset 0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				s := sessionOn(1, 1)
				p := f.start(func(s *setup) { s.deps.Handler = tc.handler(f) }).running(bedPartitions)
				f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: tc.topic(f), Err: kerr.MessageTooLarge, Count: -1})
				f.produce(tc.record(s))
				f.eventually("partition 1 is halted", func() bool {
					return cmp.Equal(sorted(p.status()), []string{"running", "halted", "running", "running"})
				})
				if fault := p.statusOf(func(s PartitionStatus) string { return s.Fault })[1]; !strings.Contains(fault, tc.want) {
					f.t.Errorf("the fault is %q, want %q in it", fault, tc.want)
				}
				if at := f.committed()[1].At; at != 0 {
					f.t.Errorf("offset %d is committed", at)
				}
				p.end()
			})
		})
	}
}

// TestWorker_BeginsNothingInALaneThatIsMended: the next turn of a session comes while a refusal of an earlier one is mended. It runs
// after the tasks that mend it, and the lane's places are given back.
func TestWorker_BeginsNothingInALaneThatIsMended(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		s := sessionOn(1, 1)
		m := &mender{echo: &echo{value: large(30_000)}}
		m.during = func() {
			f.produce(turn(s, "next"))
			<-time.After(time.Second) // It is fetched and queued by now.
			if slices.Contains(m.runs(), "next") {
				f.t.Error("the next turn runs")
			}
		}
		p := f.start(m.handles, with(func(c *Config) { c.Window, c.MaxInFlight = 2, 2 })).running(bedPartitions)
		f.lowerMax(f.output.Name, 20_000)
		f.produce(turn(s, "large"))
		f.eventually("the next turn is done", func() bool { return f.committed()[1].At == 2 })
		if diff := cmp.Diff([]string{"large refused", "next 1"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		m.during = nil
		f.load(20, 5) // More than there are places.
		f.handled()
		p.end()
	})
}

// TestWorker_EndsManyRefusedTurnsSoon: an operator has lowered a limit below what every turn writes. Each costs a cycle or two, not a
// growing wait.
func TestWorker_EndsManyRefusedTurnsSoon(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		m := &mender{echo: &echo{value: large(30_000)}}
		p := f.start(m.handles).running(bedPartitions)
		f.lowerMax(f.output.Name, 20_000)
		began := time.Now()
		for i := range 60 {
			f.produce(turn(sessionOn(int32(i%bedPartitions), i), fmt.Sprintf("large-%d", i)))
		}
		f.handled()
		if n := len(m.all()); n != 60 {
			f.t.Errorf("%d refusals, want 60", n)
		}
		if took := time.Since(began); took > 30*time.Second {
			f.t.Errorf("it took %s", took)
		}
		p.end()
		p.stateIsTheChangelog()
	})
}
