package dedupe

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

var (
	update   = flag.Bool("update", false, "rewrite the golden files")
	seedFlag = flag.Uint64("seed", 0, "the seed of randomised tests; 0 takes a new one")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testPartition = 4

// bed is a partition's dedupe state over a real store in memory, with a committer that the test drives.
type bed struct {
	t   testing.TB
	cfg Config
	fs  *vfs.MemFS
	// formats are those of the release that runs.
	formats statestore.Formats
	state   *statestore.Store
	part    *statestore.Partition
	store   *Store

	// wake is written when an urgent effect was added, and read by waitCommitted.
	wake chan struct{}
	// added is written when any effect was added, and read by who drives an expiry.
	added chan struct{}

	mu sync.Mutex
	// outputs, records and offsets are what was committed so far.
	outputs []statestore.Output
	records []statestore.Record
	offsets []int64
	clock   time.Time
}

func newBed(tb testing.TB, change ...func(*Config)) *bed {
	tb.Helper()
	enc, err := schemas.NewEncoder(schemas.EncodingJSON, schemas.EncoderOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	b := &bed{t: tb, fs: vfs.NewMem(), wake: make(chan struct{}, 1), added: make(chan struct{}, 1), clock: time.Date(2026, 11, 30, 8, 0, 0, 123_456_789, time.UTC)}
	b.cfg = Config{
		App: "shop", Worker: "w1", ToolTopic: "tool-events", TurnTopic: "turn-events", ToolEncoder: enc, TurnEncoder: enc, RecordBytes: 1 << 20,
		Now: func() time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.clock = b.clock.Add(time.Second)
			return b.clock
		},
	}
	for _, c := range change {
		c(&b.cfg)
	}
	b.open()
	tb.Cleanup(b.close)
	return b
}

func (b *bed) open() {
	b.t.Helper()
	if err := b.tryOpen(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) tryOpen() (err error) {
	b.t.Helper()
	if b.state, err = statestore.Open(statestore.Config{Dir: "state", FS: b.fs, RecordBytes: b.cfg.RecordBytes, Age: Age, Formats: b.formats}); err != nil {
		b.t.Fatalf("Open: %v", err)
	}
	return b.tryAttach()
}

// tryAttach opens the partition; the state may be one that this release cannot read.
func (b *bed) tryAttach() (err error) {
	b.t.Helper()
	codec, err := NewCodec(b.cfg)
	if err != nil {
		b.t.Fatalf("NewCodec: %v", err)
	}
	b.part = b.state.Attach(testPartition, func(urgent bool) {
		select {
		case b.added <- struct{}{}:
		default:
		}
		if urgent {
			select {
			case b.wake <- struct{}{}:
			default:
			}
		}
	})
	b.store, err = codec.Open(b.part)
	return err
}

func (b *bed) close() {
	b.part.Detach()
	if err := b.state.Close(); err != nil {
		b.t.Errorf("Close: %v", err)
	}
}

// restart loses what is not committed, as a killed worker does, and goes on as another worker.
func (b *bed) restart(worker string) {
	b.t.Helper()
	b.close()
	b.cfg.Worker = worker
	b.open()
}

// commit commits all that waits, in one cycle, and returns the changelog records and the outputs of it.
func (b *bed) commit() (records []statestore.Record, outputs []*statestore.Output) {
	b.t.Helper()
	for _, c := range []chan struct{}{b.wake, b.added} {
		select {
		case <-c:
		default:
		}
	}
	batch, err := b.part.Take(1<<30, 1<<30)
	if err != nil {
		b.t.Fatalf("Take: %v", err)
	}
	if batch == nil {
		return nil, nil
	}
	next := statestore.Position{ChangelogNext: int64(len(b.records) + len(batch.Records))}
	batch.Waiting().Tell()
	if err := b.state.Commit([]statestore.Settlement{{Batch: batch, Position: next}}); err != nil {
		b.t.Fatalf("Commit: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range batch.Outputs {
		b.outputs = append(b.outputs, *o)
	}
	b.records, b.offsets = append(b.records, batch.Records...), append(b.offsets, batch.Offsets...)
	return batch.Records, batch.Outputs
}

// abort takes all that waits and lets the cycle fail.
func (b *bed) abort() {
	b.t.Helper()
	if _, err := b.part.Take(1<<30, 1<<30); err != nil {
		b.t.Fatalf("Take: %v", err)
	}
}

func (b *bed) done() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.offsets)
}

// agent is the configuration that tests run under.
func agent(history bool) *fact.Agent {
	return &fact.Agent{
		Name: "support", Model: fact.ModelSpec{Name: "m", Provider: "openai", Model: "gpt"}, System: "You help.", History: history,
		Tools:  []fact.Tool{lookup(), charge()},
		Limits: fact.Limits{Steps: 16, Calls: 64, Parallel: 8, Failures: 3, Duration: time.Minute, ContextBytes: 1 << 20},
	}
}

func lookup() fact.Tool {
	return fact.Tool{Name: "lookup", Version: "1", Effect: schemas.EffectRead, Idempotency: schemas.SafeToRetry, Fingerprint: "fp1"}
}

func charge() fact.Tool {
	return fact.Tool{Name: "charge", Version: "2", Effect: schemas.EffectWrite, Idempotency: schemas.AtMostOnce, Fingerprint: "fp2"}
}

// ask is a turn of session s1 as it comes, whose payload is its text.
func ask(turnID, text string, offset int64) *Input { return askIn("s1", turnID, text, offset) }

func askIn(session, turnID, text string, offset int64) *Input {
	sum := sha256.Sum256([]byte(session + "\x00" + text))
	return &Input{
		Event: &schemas.TurnEvent{
			Type: schemas.InputTurn, TurnID: turnID, SessionID: session, Agent: "support", Messages: []schemas.Message{{Role: "user", Text: text}},
			Metadata: map[string]string{"tenant": "blue"},
		},
		Hash: append([]byte{1}, sum[:]...), Origin: fact.Origin{Topic: "turns", Partition: testPartition, Offset: offset}, Agent: agent(true),
	}
}

func (b *bed) accept(in *Input) *Journal {
	b.t.Helper()
	j, err := b.store.Accept(in)
	if err != nil || j == nil {
		b.t.Fatalf("Accept(%s): %v, %v", in.Event.TurnID, j, err)
	}
	return j
}

func (b *bed) add(j *Journal, facts ...fact.Fact) {
	b.t.Helper()
	if err := j.Add(facts...); err != nil {
		b.t.Fatalf("Add: %v", err)
	}
}

func responded(step int, calls ...string) *fact.Responded {
	f := &fact.Responded{
		Response: fact.Response{
			Step: step, FinishReason: schemas.FinishStop, Provider: "openai", Model: "gpt-1", Usage: schemas.Usage{InputTokens: 10, OutputTokens: 3}, Duration: 1500 * time.Millisecond,
		},
		At: at(step * 1000), Worker: "w1",
	}
	if len(calls) == 0 {
		f.Text = "done"
	}
	for i, args := range calls {
		f.FinishReason = schemas.FinishToolCall
		f.Calls = append(f.Calls, fact.Asked{Name: "lookup", CallID: fmt.Sprintf("call_%d_%d", step, i), Arguments: []byte(args)})
	}
	return f
}

func call(tool fact.Tool, step, position int, input string) fact.Call {
	return fact.Call{Ref: fact.Ref{Step: step, Position: position}, CallID: fmt.Sprintf("call_%d_%d", step, position), Tool: tool, Input: []byte(input)}
}

func began(calls ...fact.Call) *fact.Began {
	return &fact.Began{Calls: calls, At: at(calls[0].Step*1000 + 10), Worker: "w1"}
}

func finished(c fact.Call, output string) *fact.Finished {
	return &fact.Finished{
		Result: fact.Result{
			Ref: c.Ref, CallID: c.CallID, Tool: c.Tool, Status: schemas.StatusOK, Output: []byte(output), Started: true, Attempts: 1, Duration: 42 * time.Millisecond,
		},
		At: at(c.Step*1000 + 52), Worker: "w1",
	}
}

func ended(status string) *fact.Ended {
	return &fact.Ended{
		Status: status, Output: []byte(`"done"`), Usage: schemas.Usage{InputTokens: 40, OutputTokens: 12}, Steps: 4, ToolCalls: 3, Duration: 4 * time.Second, Workers: 1,
		At: at(9000), Worker: "w1",
	}
}

func at(ms int) time.Time {
	return time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC).Add(time.Duration(ms)*time.Millisecond + 654_321)
}

// event is what every event has, as a reader of the topics sees it.
type event struct {
	ID      string `json:"event_id"`
	Type    string `json:"type"`
	Seq     *int64 `json:"seq"`
	TurnID  string `json:"turn_id"`
	Session string `json:"session_id"`
	Worker  string `json:"worker"`
	Status  string `json:"status"`
	Code    string `json:"code"`
}

func decode(tb testing.TB, o *statestore.Output) event {
	tb.Helper()
	var ev event
	if err := json.Unmarshal(o.Value, &ev); err != nil {
		tb.Fatalf("%s: %v", o.Value, err)
	}
	if string(o.Key) != ev.Session || o.Partition != -1 || o.Topic != map[bool]string{true: "tool-events", false: "turn-events"}[strings.HasPrefix(ev.Type, "tool:")] {
		tb.Errorf("%s goes to %s, partition %d, with key %s", ev.ID, o.Topic, o.Partition, o.Key)
	}
	return ev
}

// ids are the ids of committed events, in order.
func (b *bed) ids() []string {
	b.t.Helper()
	var out []string
	for i := range b.outputs {
		out = append(out, decode(b.t, &b.outputs[i]).ID)
	}
	return out
}

// checkEvents checks that each turn's events are there once each, in order, with no gap in their seq.
func (b *bed) checkEvents() {
	b.t.Helper()
	next, seen := map[string]int64{}, map[string]bool{}
	for i := range b.outputs {
		ev := decode(b.t, &b.outputs[i])
		if ev.Seq == nil || *ev.Seq != next[ev.TurnID] || seen[ev.ID] {
			b.t.Errorf("event %s has seq %v, want %d; seen before: %t", ev.ID, ev.Seq, next[ev.TurnID], seen[ev.ID])
			return
		}
		next[ev.TurnID], seen[ev.ID] = next[ev.TurnID]+1, true
	}
}

func codeOf(err error) schemas.Code {
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		return e.Code
	}
	return ""
}

// waitCommitted runs commits as they are asked for until f is done.
func (b *bed) waitCommitted(f func(ctx context.Context) error) {
	b.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f(b.t.Context()) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				b.t.Fatalf("commit: %v", err)
			}
			return
		case <-b.wake:
			b.commit()
		}
	}
}

// keys are the keys of records, with a minus before those that are deleted, and the number of a journal's records left as it is.
func keys(records []statestore.Record) []string {
	out := make([]string, len(records))
	for i, r := range records {
		out[i] = r.Key
		if r.Value == nil {
			out[i] = "-" + r.Key
		}
		if r.Key[0] == 'a' {
			out[i] = "a"
		}
	}
	slices.Sort(out)
	return out
}

// committedKeys are the keys in the database, without agents.
func (b *bed) committedKeys() []string {
	b.t.Helper()
	var out []string
	err := b.state.Scan(testPartition, "", func(key string, _ []byte) error {
		if key[0] != 'a' {
			out = append(out, key)
		}
		return nil
	})
	if err != nil {
		b.t.Fatalf("Scan: %v", err)
	}
	return out
}

// encode is the record as it is stored.
func (r record) encode() ([]byte, error) { return r.append(nil) }
