package turn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	godiff "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/lathe-run/lathe/internal/fact"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A golden file holds an agent, a turn, what the model and the tools answer, and the log of all that happens: model requests,
// what is recorded and how, and what runs when.
func TestRun_GoesAsItsTranscriptSays(t *testing.T) {
	t.Parallel()
	for _, file := range transcripts(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			arc, s := load(t, file)
			var got string
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(s)
				l := newLedger(t)
				err := runTurn(t, w, &journal{world: w, ledger: l, latency: 5 * time.Millisecond}, nil)
				got = w.show(err)
				checkWhole(t, w, l, err)
			})
			compare(t, file, arc, got)
		})
	}
}

func transcripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/turns/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no transcripts: %v", err)
	}
	return files
}

func load(t *testing.T, file string) (*txtar.Archive, *scenario) {
	t.Helper()
	arc, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &scenario{}
	into := map[string]any{"agent.json": &s.Agent, "turn.json": &s.Turn, "model.json": &s.Model, "tools.json": &s.Tools}
	for _, f := range arc.Files {
		if f.Name == "log" {
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(f.Data))
		dec.DisallowUnknownFields()
		if into[f.Name] == nil {
			t.Fatalf("%s: what is %s?", file, f.Name)
		}
		if err := dec.Decode(into[f.Name]); err != nil {
			t.Fatalf("%s: %s: %v", file, f.Name, err)
		}
	}
	return arc, s
}

// runTurn runs the scenario's turn from what frames say, until it ends or stops.
func runTurn(t *testing.T, w *world, j Journal, frames []fact.Frame) error {
	t.Helper()
	known, err := Replay(frames)
	if err != nil {
		t.Fatalf("Replay: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s := w.scenario
	var stops []func() bool
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for _, e := range []struct {
		after string
		do    func()
	}{
		{s.Turn.Cancel, func() { w.note(nil, "the turn is cancelled"); cancel(ErrCancelled) }},
		{s.Turn.Drain, func() { w.note(nil, "the partition is drained"); w.drain() }},
		{s.Turn.Stop, func() { w.note(nil, "the worker stops"); cancel(errStopped) }},
	} {
		if e.after != "" {
			if e.after == "0s" {
				e.do()
				continue
			}
			stops = append(stops, time.AfterFunc(span(e.after), e.do).Stop)
		}
	}
	loop := New(Config{Worker: "w1", Now: time.Now, CheckOutput: checkOutput, Logger: slog.New(slog.DiscardHandler)}, w, w)
	return loop.Run(ctx, &Turn{
		Accepted: s.accepted(w.begin), Agent: s.agent(), History: messagesOf(s.Turn.History), Known: known, Journal: j, Gate: w,
		Suspect: w.suspect,
	})
}

// show is the log as the golden file has it. What several calls did in one instant is in the order of the calls, since nothing
// says in which order it happened.
func (w *world) show(err error) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := slices.Clone(w.log)
	for i := 0; i < len(log); {
		k := i + 1
		for k < len(log) && log[i].ref != nil && log[k].ref != nil && log[k].at == log[i].at {
			k++
		}
		slices.SortStableFunc(log[i:k], func(a, b line) int {
			if a.ref == nil {
				return 0
			}
			return cmp.Or(cmp.Compare(a.ref.Step, b.ref.Step), cmp.Compare(a.ref.Position, b.ref.Position))
		})
		i = k
	}
	var b strings.Builder
	for _, l := range log {
		fmt.Fprintf(&b, "%7s %s\n", l.at, l.text)
	}
	if err != nil {
		fmt.Fprintf(&b, "        Run: %v\n", strings.ReplaceAll(err.Error(), "\n", ", "))
	}
	return b.String()
}

func compare(t *testing.T, file string, arc *txtar.Archive, got string) {
	t.Helper()
	i := slices.IndexFunc(arc.Files, func(f txtar.File) bool { return f.Name == "log" })
	if *update {
		if i < 0 {
			arc.Files = append(arc.Files, txtar.File{Name: "log"})
			i = len(arc.Files) - 1
		}
		arc.Files[i].Data = []byte(got)
		if err := os.WriteFile(file, txtar.Format(arc), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if i < 0 {
		t.Fatalf("%s has no log; run with -update", file)
	}
	if diff := godiff.Diff(string(arc.Files[i].Data), got); diff != "" {
		t.Errorf("%s: the turn goes another way; run with -update if that is right (-want +got):\n%s", file, diff)
	}
}

// checkWhole checks what holds for every turn: an ended turn has a result for every call that was asked for, each once, no
// call has a start without a result or a result that is wrong about its start, and nothing follows the end. seq has no gap.
func checkWhole(t *testing.T, w *world, l *ledger, err error) {
	t.Helper()
	asked, started, finished := map[fact.Ref]bool{}, map[fact.Ref]bool{}, map[fact.Ref]bool{}
	seq, ended := int64(0), false
	start := func(calls []fact.Call) {
		for _, c := range calls {
			if started[c.Ref] {
				t.Errorf("call %s has two tool:start", at(c.Ref))
			}
			started[c.Ref] = true
		}
	}
	for _, f := range l.frames(t) {
		if f.Seq != seq {
			t.Errorf("%s has seq %d, want %d", showFact(f.Fact), f.Seq, seq)
		}
		seq += f.Fact.Events()
		if ended {
			t.Errorf("%s comes after the end", showFact(f.Fact))
		}
		switch f := f.Fact.(type) {
		case *fact.Responded:
			for i := range f.Calls {
				asked[fact.Ref{Step: f.Step, Position: i}] = true
			}
			start(f.Wave)
		case *fact.Began:
			if !f.Again {
				start(f.Calls)
			}
		case *fact.Finished:
			if finished[f.Ref] {
				t.Errorf("call %s has two results", at(f.Ref))
			}
			if !asked[f.Ref] || f.Started != started[f.Ref] {
				t.Errorf("the result of call %s says started %t, which is not so (or nobody asked)", at(f.Ref), f.Started)
			}
			finished[f.Ref] = true
		case *fact.Ended:
			ended = true
		case *fact.Accepted, *fact.NotBegun, *fact.Cancelled, *fact.Restarted:
		}
	}
	if ended != (err == nil) {
		t.Errorf("ended %t, although Run gives %v", ended, err)
	}
	for ref := range asked {
		if ended && !finished[ref] {
			t.Errorf("the turn ended without a result of call %s", at(ref))
		}
	}
	if parallel := w.scenario.agent().Limits.Parallel; w.mostAtOnce > parallel {
		t.Errorf("%d calls ran at once, more than %d", w.mostAtOnce, parallel)
	}
}
