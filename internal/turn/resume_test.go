package turn

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	godiff "github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

var seedFlag = flag.Uint64("seed", 0, "the seed of randomised tests; 0 takes a new one")

func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// life is one turn over all the workers that have a hand in it.
type life struct {
	t        *testing.T
	scenario *scenario
	world    *world
	ledger   *ledger
}

func newLife(t *testing.T, s *scenario) *life {
	t.Helper()
	return &life{t: t, scenario: s, world: newWorld(s), ledger: newLedger(t)}
}

// work runs the turn on one more worker, with a fault at a write; 0 is no fault. It checks that what is recorded is used: no
// recorded response is asked for again, no call with a recorded result runs again.
func (l *life) work(f fault, faultAt int) error {
	l.t.Helper()
	l.world.mu.Lock()
	l.world.draining = false
	l.world.mu.Unlock()
	frames := l.ledger.frames(l.t)
	steps, done := 0, map[fact.Ref]int{}
	for _, fr := range frames {
		switch fr := fr.Fact.(type) {
		case *fact.Responded:
			steps++
		case *fact.Finished:
			done[fr.Ref] = len(l.world.runs[fr.Ref])
		case *fact.Accepted, *fact.Began, *fact.NotBegun, *fact.Cancelled, *fact.Restarted, *fact.Ended:
		}
	}
	asked := make([]int, steps)
	for step := range steps {
		asked[step] = len(l.world.asked[step])
	}
	j := &journal{world: l.world, ledger: l.ledger, latency: time.Millisecond, faultAt: faultAt, fault: f}
	err := runTurn(l.t, l.world, j, frames)
	for ref, n := range done {
		if len(l.world.runs[ref]) != n {
			l.t.Errorf("call %s ran again, although its result was recorded", at(ref))
		}
	}
	for step, n := range asked {
		if len(l.world.asked[step]) != n {
			l.t.Errorf("the model was asked for step %d again, although its response was recorded", step)
		}
	}
	return err
}

// kill is a fault after which the worker is dead; stored says that its last write reached the log all the same.
func (l *life) kill(stored bool) fault {
	return fault{name: "kill", stored: stored, dead: true, then: l.world.drain}
}

// drain is a fault at which the partition starts to be drained.
func (l *life) drain() fault { return fault{name: "drain", stored: true, then: l.world.drain} }

// outcome is what is recorded of the turn, without what differs from run to run.
func (l *life) outcome() []string {
	var out []string
	for _, f := range l.ledger.frames(l.t) {
		switch f := f.Fact.(type) {
		case *fact.Responded:
			f.Wave = nil
			out = append(out, showFact(f))
		case *fact.Finished, *fact.Ended:
			out = append(out, showFact(f))
		case *fact.Accepted, *fact.Began, *fact.NotBegun, *fact.Cancelled, *fact.Restarted:
		}
	}
	slices.Sort(out)
	return out
}

// check checks the promises about a turn that has come to its end, and that it ended as it would have without faults, unless a
// kill left a call in doubt that runs at most once.
func (l *life) check(err error, want []string) {
	l.t.Helper()
	if err != nil {
		l.t.Errorf("the last worker gives %v", err)
	}
	checkWhole(l.t, l.world, l.ledger, err)
	indeterminate := false
	for _, f := range l.ledger.frames(l.t) {
		if f, ok := f.Fact.(*fact.Finished); ok && f.Status == schemas.StatusIndeterminate {
			indeterminate = true
		}
	}
	for ref, runs := range l.world.runs {
		if tool := l.toolAt(ref); tool.Idempotency == schemas.AtMostOnce && len(runs) > 1 {
			l.t.Errorf("call %s of %s ran %d times", at(ref), tool.Name, len(runs))
		}
		for _, input := range runs[1:] {
			if input != runs[0] && l.toolAt(ref).Changes() {
				l.t.Errorf("call %s ran with %s and then with %s under the same key", at(ref), runs[0], input)
			}
		}
	}
	for step, asked := range l.world.asked {
		for _, again := range asked[1:] {
			if again != asked[0] && !indeterminate {
				l.t.Errorf("step %d was asked with %s and then with %s", step, asked[0], again)
			}
		}
	}
	got := l.outcome()
	if indeterminate {
		if end := l.ledger.ended(l.t); end.Status != schemas.StatusIndeterminate && !l.scenario.Agent.ContinueOnUnknown && end.Status != schemas.StatusOutcomeUnknown {
			l.t.Errorf("the turn ended %s with an indeterminate call", end.Status)
		}
		return
	}
	if diff := godiff.Diff(want, got); diff != "" {
		l.t.Errorf("the turn went another way than without faults (-want +got):\n%s", diff)
	}
}

func (l *life) toolAt(ref fact.Ref) fact.Tool {
	name, _, _ := strings.Cut(l.scenario.Model[ref.Step].Calls[ref.Position], " ")
	for _, line := range l.scenario.Agent.Tools {
		if tool := toolOf(line); tool.Name == name {
			return tool
		}
	}
	return fact.Tool{}
}

// undisturbed runs the turn without a fault, and returns its outcome and how often it writes.
func undisturbed(t *testing.T, s *scenario) (want []string, writes int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, s)
		err := l.work(fault{}, 0)
		if err != nil {
			t.Fatalf("without a fault: %v", err)
		}
		want, writes = l.outcome(), len(l.ledger.effects)
	})
	return want, writes
}

// timeless are the transcripts in which nothing depends on when something happens.
func timeless(t *testing.T) map[string]*scenario {
	t.Helper()
	out := make(map[string]*scenario)
	for _, file := range transcripts(t) {
		_, s := load(t, file)
		if s.Turn.Cancel+s.Turn.Drain+s.Turn.Stop+s.Turn.Deadline+s.Agent.Duration == "" && !strings.Contains(file, "panic") {
			out[strings.TrimSuffix(filepath.Base(file), ".txtar")] = s
		}
	}
	return out
}

// A worker is killed at every write of every transcript, with the write stored or not, and with everything lost that may be
// lost; the next worker brings the turn to the same end.
func TestRun_ResumesFromAKillAtEveryWrite(t *testing.T) {
	t.Parallel()
	for name, s := range timeless(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, writes := undisturbed(t, s)
			for at := 1; at <= writes; at++ {
				for _, stored := range []bool{false, true} {
					for kept, more := 0, true; more; kept++ {
						more = killAndResume(t, s, want, at, stored, kept)
					}
				}
			}
		})
	}
}

// killAndResume keeps the kept-th of the lengths that the log can have after the kill; it returns false when there is none more.
func killAndResume(t *testing.T, s *scenario, want []string, at int, stored bool, kept int) (more bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, s)
		err := l.work(l.kill(stored), at)
		if end := l.ledger.ended(t); err == nil || end != nil && !stored {
			t.Errorf("killed at write %d, and yet the worker gives %v, ended %v", at, err, end)
		}
		kept += l.ledger.committed
		more = kept < len(l.ledger.effects)
		l.ledger.lose(t, min(kept, len(l.ledger.effects)))
		if l.ledger.ended(t) != nil {
			err = nil // Nothing is left to do.
		} else {
			err = l.work(fault{}, 0)
		}
		l.check(err, want)
		if t.Failed() {
			t.Logf("killed at write %d (stored %t), %d effects kept:\n%s", at, stored, kept, l.world.show(err))
		}
	})
	return more
}

// A partition that is drained at any write is taken over without a loss: every call that was announced runs exactly once.
func TestRun_ResumesFromADrainAtEveryWrite(t *testing.T) {
	t.Parallel()
	for name, s := range timeless(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, writes := undisturbed(t, s)
			for at := 1; at <= writes; at++ {
				for again := 1; again <= writes; again++ {
					drainTwice(t, s, want, at, again)
				}
			}
		})
	}
}

func drainTwice(t *testing.T, s *scenario, want []string, at, again int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, s)
		err := l.work(l.drain(), at)
		if err != nil {
			err = l.work(l.drain(), again)
		}
		if err != nil {
			err = l.work(fault{}, 0)
		}
		l.check(err, want)
		if !slices.Equal(l.outcome(), want) {
			t.Errorf("drains alone changed the outcome")
		}
		for ref, runs := range l.world.runs {
			if len(runs) != 1 {
				t.Errorf("call %d/%d ran %d times", ref.Step, ref.Position, len(runs))
			}
		}
		if t.Failed() {
			t.Logf("drained at writes %d and %d:\n%s", at, again, l.world.show(err))
		}
	})
}

// Kills and drains follow one another at random, as often as a turn can bear.
func TestRun_ResumesFromAnySequenceOfKillsAndDrains(t *testing.T) {
	t.Parallel()
	rnd := newRand(t)
	for name, s := range timeless(t) {
		want, writes := undisturbed(t, s)
		for round := range 15 {
			synctest.Test(t, func(t *testing.T) {
				l := newLife(t, s)
				story := disturb(l, rnd, writes)
				var err error
				if l.ledger.ended(t) == nil {
					err = l.work(fault{}, 0)
				}
				l.check(err, want)
				if t.Failed() {
					t.Fatalf("%s, round %d: %s:\n%s", name, round, strings.Join(story, ", "), l.world.show(err))
				}
			})
		}
	}
}

func disturb(l *life, rnd *rand.Rand, writes int) (story []string) {
	for range 1 + rnd.IntN(5) {
		at := 1 + rnd.IntN(writes)
		if rnd.IntN(2) == 0 {
			story = append(story, fmt.Sprintf("drained at write %d", at))
			if l.work(l.drain(), at) == nil {
				return story
			}
			continue
		}
		stored := rnd.IntN(2) == 0
		_ = l.work(l.kill(stored), at)
		kept := l.ledger.committed + rnd.IntN(len(l.ledger.effects)-l.ledger.committed+1)
		story = append(story, fmt.Sprintf("killed at write %d (stored %t), %d effects kept", at, stored, kept))
		l.ledger.lose(l.t, kept)
		if l.ledger.ended(l.t) != nil {
			return story
		}
	}
	return story
}

// A wave was announced, and its worker drained before it began: the next worker runs it, says so first, and gives it no second
// tool:start. A worker that is killed right after saying so leaves the calls in doubt, and they are never run.
func TestRun_SaysThatACallBeginsAgainBeforeItDoes(t *testing.T) {
	t.Parallel()
	_, s := load(t, "testdata/turns/writes.txtar")
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed then %t", killed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLife(t, s)
				if err := l.work(l.drain(), 1); err == nil {
					t.Fatalf("the turn ended, although it was drained before its first call")
				}
				l.ledger.lose(t, len(l.ledger.effects)) // The drain's last commit.
				f, writes := fault{}, 0
				if killed {
					f, writes = l.kill(true), 1
				}
				err := l.work(f, writes)
				log := l.world.show(err)
				if want := "commit: began again 0/0 0/1\n"; !strings.Contains(log, "add: not begun 0/0 0/1\n") || !strings.Contains(log, want) {
					t.Errorf("the log lacks %q:\n%s", want, log)
				}
				if killed {
					err = l.work(fault{}, 0)
				}
				checkWhole(t, l.world, l.ledger, err)
				end := l.ledger.ended(t)
				ran, status := map[bool]int{false: 1, true: 0}[killed], map[bool]string{false: schemas.StatusCompleted, true: schemas.StatusIndeterminate}[killed]
				for position := range 2 {
					if n := len(l.world.runs[fact.Ref{Position: position}]); n != ran {
						t.Errorf("call 0/%d ran %d times, want %d:\n%s", position, n, ran, l.world.show(err))
					}
				}
				if end.Status != status {
					t.Errorf("the turn ended %s, want %s", end.Status, status)
				}
			})
		})
	}
}
