package dedupe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/internal/turn"
	"github.com/lathe-run/lathe/schemas"
)

// broker is what outlives every worker: the turns to run, the changelog, the events and the offsets, and the world that tools
// change.
type broker struct {
	t      *testing.T
	rnd    *rand.Rand
	inputs []*Input

	mu        sync.Mutex
	changelog []statestore.Record
	outputs   []statestore.Output
	done      map[int64]bool
	// charged counts how often each key was charged, whatever became of it.
	charged map[string]int
}

// Workers run turns of many sessions from a real store, a loop and a journal; cycles are aborted, workers are killed at any
// moment and lose a part of their disk; the next restores from the changelog and goes on. In the end every turn has ended, each
// event was written once, in order, and nothing was charged twice.
func TestStore_KeepsItsPromisesWhateverHappensToWorkers(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -seed=%d (goroutines still run as they like)", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for round := range 4 {
		br := newBroker(t, rnd)
		fs := vfs.NewCrashableMem()
		workers := 0
		for len(br.done) < len(br.inputs) {
			workers++
			fs = br.work(fs, fmt.Sprintf("w%d", workers), workers < 12)
			if t.Failed() {
				t.Fatalf("round %d, worker %d", round, workers)
			}
		}
		br.check(fs)
		t.Logf("round %d: %d turns, %d workers, %d changelog records, %d events", round, len(br.inputs), workers, len(br.changelog), len(br.outputs))
	}
}

func newBroker(t *testing.T, rnd *rand.Rand) *broker {
	t.Helper()
	br := &broker{t: t, rnd: rnd, done: make(map[int64]bool), charged: make(map[string]int)}
	for i := range 30 {
		session := fmt.Sprint("s", i%5)
		in := askIn(session, fmt.Sprint("t", i), fmt.Sprint("turn ", i), int64(len(br.inputs)))
		in.Agent.Limits.Failures = 9
		br.inputs = append(br.inputs, in)
		if i%7 == 3 { // Sent twice.
			again := *in
			again.Origin.Offset = int64(len(br.inputs))
			br.inputs = append(br.inputs, &again)
		}
	}
	return br
}

// restored opens the store on a disk and brings it up to date from the changelog.
func (br *broker) restored(fs *vfs.MemFS) *statestore.Store {
	br.t.Helper()
	state, err := statestore.Open(statestore.Config{Dir: "state", FS: fs, MemTableBytes: 64 << 10})
	if err != nil {
		br.t.Fatalf("Open: %v", err)
	}
	pos, _, err := state.Position(testPartition)
	if err != nil {
		br.t.Fatalf("Position: %v", err)
	}
	rest := br.changelog[pos.ChangelogNext:]
	if err := state.Restore(testPartition, rest, statestore.Position{ChangelogNext: int64(len(br.changelog))}); err != nil {
		br.t.Fatalf("Restore: %v", err)
	}
	return state
}

// work runs one worker until all is done, or until it is killed; it returns the disk that the next one finds.
func (br *broker) work(fs *vfs.MemFS, name string, mayDie bool) *vfs.MemFS {
	br.t.Helper()
	state := br.restored(fs)
	wake := make(chan struct{}, 1)
	part := state.Attach(testPartition, func(bool) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	enc, err := schemas.NewEncoder(schemas.EncodingJSON, schemas.EncoderOptions{})
	if err != nil {
		br.t.Fatal(err)
	}
	codec, err := NewCodec(Config{
		App: "shop", Worker: name, ToolTopic: "tool-events", TurnTopic: "turn-events", ToolEncoder: enc, TurnEncoder: enc, RecordBytes: 1 << 20, Now: time.Now,
	})
	if err != nil {
		br.t.Fatal(err)
	}
	opened, err := codec.Open(part)
	if err != nil {
		br.t.Fatal(err)
	}
	idle := br.lanes(opened, name)
	crashed := br.cycles(state, part, fs, wake, idle, mayDie)
	part.Detach()
	<-idle
	if err := state.Close(); err != nil {
		br.t.Errorf("Close: %v", err)
	}
	return crashed
}

// lanes runs the turns that are not done, one lane for each session, and closes the channel when all lanes have stopped.
func (br *broker) lanes(store *Store, name string) <-chan struct{} {
	lanes := make(map[string][]*Input)
	for _, in := range br.inputs {
		if !br.done[in.Origin.Offset] {
			lanes[in.Event.SessionID] = append(lanes[in.Event.SessionID], in)
		}
	}
	var wg sync.WaitGroup
	for _, inputs := range lanes {
		wg.Go(func() {
			for _, in := range inputs {
				if err := br.runOne(store, name, in); err != nil {
					if !errors.Is(err, statestore.ErrGone) {
						br.t.Errorf("%s, offset %d: %v", in.Event.TurnID, in.Origin.Offset, err)
					}
					return
				}
			}
		})
	}
	idle := make(chan struct{})
	go func() {
		wg.Wait()
		close(idle)
	}()
	return idle
}

func (br *broker) runOne(store *Store, name string, in *Input) error {
	j, err := store.Accept(in)
	if err != nil || j == nil {
		return err
	}
	defer j.Close()
	known, err := turn.Replay(j.Frames())
	if err != nil {
		return err
	}
	loop := turn.New(turn.Config{Worker: name, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, br, br)
	return loop.Run(br.t.Context(), &turn.Turn{Accepted: j.Accepted(), Agent: j.Agent(), History: j.History(), Known: known, Journal: j, Gate: br})
}

// cycles commits what waits until the lanes are idle and nothing is left. A cycle may be aborted; the worker may be killed
// before a cycle, after its transaction committed but before the store knows, or after that.
func (br *broker) cycles(state *statestore.Store, part *statestore.Partition, fs *vfs.MemFS, wake, idle <-chan struct{}, mayDie bool) *vfs.MemFS {
	for {
		if n, _ := part.Pending(); n == 0 {
			select {
			case <-wake:
			case <-idle:
			}
		}
		fate := br.rnd.IntN(100)
		dies := mayDie && fate < 8
		batch, err := part.Take(1+br.rnd.IntN(20_000), 1+br.rnd.IntN(60))
		if err != nil {
			br.t.Errorf("Take: %v", err)
			return fs
		}
		if batch == nil {
			select {
			case <-idle:
				return fs
			default:
				continue
			}
		}
		if fate >= 80 || dies && fate < 3 { // Aborted.
			if dies {
				return br.crash(fs)
			}
			continue
		}
		next := br.publish(batch)
		if dies && fate < 6 {
			return br.crash(fs)
		}
		batch.Waiting().Tell()
		if err := state.Commit([]statestore.Settlement{{Batch: batch, Position: statestore.Position{ChangelogNext: next}}}); err != nil {
			br.t.Errorf("Commit: %v", err)
			return fs
		}
		if dies {
			return br.crash(fs)
		}
	}
}

func (br *broker) crash(fs *vfs.MemFS) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: br.rnd.IntN(101), RNG: br.rnd})
}

// publish is the transaction of a batch.
func (br *broker) publish(b *statestore.Batch) (next int64) {
	br.mu.Lock()
	defer br.mu.Unlock()
	br.changelog = append(br.changelog, b.Records...)
	for _, o := range b.Outputs {
		br.outputs = append(br.outputs, *o)
	}
	for _, offset := range b.Offsets {
		if br.done[offset] {
			br.t.Errorf("offset %d was done before", offset)
		}
		br.done[offset] = true
	}
	return int64(len(br.changelog))
}

// Permit implements turn.Gate.
func (br *broker) Permit(context.Context) error { return nil }

// Respond implements turn.Model: three steps with calls, and an answer.
func (br *broker) Respond(_ context.Context, req *fact.Request) (*fact.Response, error) {
	if req.Step == 3 {
		return &fact.Response{Text: "done", FinishReason: schemas.FinishStop}, nil
	}
	resp := &fact.Response{FinishReason: schemas.FinishToolCall}
	for i := range 3 {
		tool := []string{"lookup", "charge", "nope"}[(req.Step+i)%3]
		resp.Calls = append(resp.Calls, fact.Asked{Name: tool, CallID: strconv.Itoa(i), Arguments: []byte(`{}`)})
	}
	return resp, nil
}

// Offer implements turn.Tools.
func (br *broker) Offer([]string, bool, []fact.Tool) (turn.Offer, error) { return br, nil }

// Specs implements turn.Offer.
func (br *broker) Specs() []fact.ToolSpec { return nil }

// Prepare implements turn.Offer.
func (br *broker) Prepare(asked fact.Asked, ref fact.Ref) (*fact.Call, *fact.Result) {
	for _, tool := range []fact.Tool{lookup(), charge()} {
		if tool.Name == asked.Name {
			return &fact.Call{Ref: ref, CallID: asked.CallID, Tool: tool, Input: asked.Arguments}, nil
		}
	}
	return nil, &fact.Result{Ref: ref, CallID: asked.CallID, Tool: fact.Tool{Name: asked.Name}, Status: schemas.StatusError, Code: schemas.CodeUnknownTool}
}

// Execute implements turn.Tools.
func (br *broker) Execute(_ context.Context, c *fact.Call, inv fact.Invocation) (fact.Result, error) {
	if c.Tool.Name == "charge" {
		br.mu.Lock()
		br.charged[c.Key(inv.TurnID)]++
		br.mu.Unlock()
	}
	return finished(*c, `"ok"`).Result, nil
}

func (br *broker) check(fs *vfs.MemFS) {
	br.t.Helper()
	for key, n := range br.charged {
		if n != 1 {
			br.t.Errorf("%s was charged %d times", key, n)
		}
	}
	next, ends, starts, results := map[string]int64{}, map[string]string{}, map[string]bool{}, map[string]bool{}
	for i := range br.outputs {
		ev := decode(br.t, &br.outputs[i])
		if ev.Seq == nil || *ev.Seq != next[ev.TurnID] || ends[ev.TurnID] != "" {
			br.t.Errorf("event %s has seq %d, want %d; the turn has ended %q", ev.ID, *ev.Seq, next[ev.TurnID], ends[ev.TurnID])
		}
		next[ev.TurnID]++
		switch ev.Type {
		case schemas.TypeToolStart:
			starts[strings.Replace(ev.ID, "start", "result", 1)] = true
		case schemas.TypeToolResult:
			results[ev.ID] = true
		case schemas.TypeTurnEnd:
			ends[ev.TurnID] = ev.Status
		}
	}
	for id := range starts {
		if !results[id] {
			br.t.Errorf("there is a start, but no %s", id)
		}
	}
	if len(ends) != 30 {
		br.t.Errorf("%d turns have ended, want 30", len(ends))
	}
	for id, status := range ends {
		if status != schemas.StatusCompleted && status != schemas.StatusIndeterminate {
			br.t.Errorf("%s ended %s", id, status)
		}
	}
	br.checkState(fs)
}

// checkState checks that nothing is left of turns but their records and their history.
func (br *broker) checkState(fs *vfs.MemFS) {
	br.t.Helper()
	s := br.restored(fs)
	defer s.Close()
	var kinds []string
	if err := s.Scan(testPartition, "", func(key string, _ []byte) error {
		kinds = append(kinds, key[:1])
		return nil
	}); err != nil {
		br.t.Fatalf("Scan: %v", err)
	}
	want := slices.Concat([]string{"a"}, slices.Repeat([]string{"h"}, 30), slices.Repeat([]string{"t"}, 30))
	if !slices.Equal(kinds, want) {
		br.t.Errorf("the state has keys of kinds %q", kinds)
	}
}
