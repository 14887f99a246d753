package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// A journal that refuses a fact because it would not fit a record ends the call or the turn with a clear code, and nothing is
// left without a finish.
func TestRun_EndsWhatDoesNotFitARecord(t *testing.T) {
	t.Parallel()
	withOutput := func(f fact.Fact) bool { r, ok := f.(*fact.Finished); return ok && r.Output != nil }
	tests := []struct {
		name, transcript string
		refuse           func(fact.Fact) bool
		want             []string
	}{
		{
			name: "a response", transcript: "writes",
			refuse: func(f fact.Fact) bool { _, ok := f.(*fact.Responded); return ok },
			want:   []string{`ended failed limit_exceeded "it is too large" steps=0 calls=0`},
		},
		{
			name: "the start of a read", transcript: "reads",
			refuse: func(f fact.Fact) bool { b, ok := f.(*fact.Began); return ok && b.Calls[0].Position == 2 },
			want: []string{
				`finished 0/2 lookup skipped limit_exceeded "the turn ended before the call began" (no start)`,
				`ended failed limit_exceeded "it is too large" steps=1 calls=4`,
			},
		},
		{
			name: "the start of a later wave", transcript: "writes",
			refuse: func(f fact.Fact) bool { _, ok := f.(*fact.Began); return ok },
			want: []string{
				`finished 0/1 charge ok "ok"`, `finished 0/2 charge skipped limit_exceeded`, `finished 0/4 charge skipped limit_exceeded`,
				`ended failed limit_exceeded "it is too large" steps=1 calls=5`,
			},
		},
		{
			name: "the result of a read", transcript: "reads", refuse: withOutput,
			want: []string{`finished 0/0 lookup error result_too_large "it is too large"`, `ended failed limit_exceeded "the limit consecutive_failures of lookup of 3 is reached" "looking"`},
		},
		{
			name: "the result of a write", transcript: "writes", refuse: withOutput,
			want: []string{`finished 0/0 charge outcome_unknown result_too_large "it is too large"`, `ended outcome_unknown result_too_large`},
		},
		{
			name: "the answer", transcript: "answer",
			refuse: func(f fact.Fact) bool { e, ok := f.(*fact.Ended); return ok && e.Output != nil },
			want:   []string{`add: ended failed limit_exceeded "it is too large" steps=1 calls=0`},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, s := load(t, "testdata/turns/"+tc.transcript+".txtar")
			synctest.Test(t, func(t *testing.T) {
				w, l := newWorld(s), newLedger(t)
				err := runTurn(t, w, &journal{world: w, ledger: l, refuse: tc.refuse}, nil)
				checkWhole(t, w, l, err)
				wantLines(t, w.show(err), tc.want)
			})
		})
	}
}

func wantLines(t *testing.T, log string, want []string) {
	t.Helper()
	for _, line := range want {
		if !strings.Contains(log, line) {
			t.Errorf("the log lacks %q:\n%s", line, log)
		}
	}
}

// A commit that never comes holds the turn until its context ends, and then nothing of the wave has begun.
func TestRun_WaitsForACommitThatHangs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		cause error
		want  []string
	}{
		{"until it is cancelled", ErrCancelled, []string{
			`1s add: finished 0/0 charge skipped cancelled "the turn ended before the call began"; finished 0/1 charge skipped cancelled`, "ended cancelled cancelled",
		}},
		{"until the worker stops", errStopped, []string{"1s add: not begun 0/0 0/1", "Run: the worker stops"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, s := load(t, "testdata/turns/writes.txtar")
			if errors.Is(tc.cause, ErrCancelled) {
				s.Turn.Cancel = "1s"
			} else {
				s.Turn.Stop = "1s"
			}
			synctest.Test(t, func(t *testing.T) {
				w, l := newWorld(s), newLedger(t)
				j := &journal{world: w, ledger: l, fault: fault{name: "hang", stored: true, hangs: true}, faultAt: 1}
				err := runTurn(t, w, j, nil)
				checkWhole(t, w, l, err)
				wantLines(t, w.show(err), tc.want)
				if len(w.runs) != 0 {
					t.Errorf("calls ran before their start was durable:\n%s", w.show(err))
				}
			})
		})
	}
}

// Whatever write it is at which the partition is lost, the turn stops, says so, and nothing begins any more.
func TestRun_StopsWhenThePartitionIsLost(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"writes", "reads", "mixed", "steps"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := load(t, "testdata/turns/"+name+".txtar")
			_, writes := undisturbed(t, s)
			for at := 1; at <= writes; at++ {
				synctest.Test(t, func(t *testing.T) {
					w, l := newWorld(s), newLedger(t)
					begun := -1
					lost := fault{name: "lost", dead: true, then: func() {
						w.drain()
						w.mu.Lock()
						begun = len(w.runs)
						w.mu.Unlock()
					}}
					err := runTurn(t, w, &journal{world: w, ledger: l, fault: lost, faultAt: at}, nil)
					if !errors.Is(err, errGone) || l.ended(t) != nil {
						t.Errorf("lost at write %d: Run gives %v", at, err)
					}
					if len(w.runs) != begun {
						t.Errorf("lost at write %d: %d calls began afterwards:\n%s", at, len(w.runs)-begun, w.show(err))
					}
				})
			}
		})
	}
}

// notRunError is the error of a tool source that knows that nothing has run.
type notRunError struct{ error }

func (notRunError) NotBegun() bool { return true }

func TestRun_BelievesAToolSourceThatNothingHasRun(t *testing.T) {
	t.Parallel()
	_, s := load(t, "testdata/turns/writes.txtar")
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, s)
		l.world.onRun = func(call *fact.Call) error {
			if call.Position == 0 {
				return fmt.Errorf("telemetry: %w", notRunError{errStopped})
			}
			return nil
		}
		err := l.work(fault{}, 0)
		wantLines(t, l.world.show(err), []string{"add: not begun 0/0\n", "Run: telemetry: the worker stops"})
		l.world.onRun = nil
		err = l.work(fault{}, 0)
		checkWhole(t, l.world, l.ledger, err)
		if end := l.ledger.ended(t); end.Status != schemas.StatusCompleted {
			t.Errorf("the turn ended %s:\n%s", end.Status, l.world.show(err))
		}
	})
}

// What a resumed turn finds recorded must be what would run now, else nothing runs.
func TestRun_RefusesToGoOnWithOtherToolsThanWereRecorded(t *testing.T) {
	t.Parallel()
	gone := func(name string) func(*fact.Tool) bool { return func(t *fact.Tool) bool { return t.Name != name } }
	other := func(name string, change func(*fact.Tool)) func(*fact.Tool) bool {
		return func(t *fact.Tool) bool {
			if t.Name == name {
				change(t)
			}
			return true
		}
	}
	refused := []string{"ended failed replay_input_changed"}
	doubt := []string{"finished 1/0 charge indeterminate", "ended indeterminate replay_input_changed"}
	fine := []string{"ended completed"}
	tests := []struct {
		name  string
		at    int // The turn of steps.txtar is killed at this write: 3 is the read's result, 4 the write's start, 5 its result.
		today func(*fact.Tool) bool
		want  []string
	}{
		{"a finished call whose tool is gone", 3, gone("lookup"), refused},
		{"a finished call whose tool has another definition", 3, other("lookup", func(t *fact.Tool) { t.Fingerprint = "new" }), refused},
		{"a finished call whose tool has another version", 3, other("lookup", func(t *fact.Tool) { t.Version = "2" }), refused},
		{"a started call whose tool is gone", 4, gone("charge"), doubt},
		{"a started call whose tool has another definition", 4, other("charge", func(t *fact.Tool) { t.Fingerprint = "new" }), doubt},
		{"a call not yet asked for whose tool has another definition", 3, other("charge", func(t *fact.Tool) { t.Fingerprint = "new" }), fine},
		{"a started read whose tool has another definition", 2, other("lookup", func(t *fact.Tool) { t.Fingerprint = "new" }), refused},
		{"a finished call whose tool now says that it writes", 3, other("lookup", func(t *fact.Tool) { t.Effect = schemas.EffectWrite }), fine},
		{"a started call that may run again today but might not then", 4, other("charge", func(t *fact.Tool) { t.Idempotency = schemas.SafeToRetry }), []string{
			"finished 1/0 charge indeterminate", "ended indeterminate indeterminate",
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, s := load(t, "testdata/turns/steps.txtar")
			synctest.Test(t, func(t *testing.T) {
				l := newLife(t, s)
				if err := l.work(l.kill(true), tc.at); err == nil {
					t.Fatalf("the turn ended before write %d", tc.at)
				}
				runs := len(l.world.runs)
				l.world.today = tc.today
				err := l.work(fault{}, 0)
				checkWhole(t, l.world, l.ledger, err)
				wantLines(t, l.world.show(err), tc.want)
				if tc.want[0] != "ended completed" && len(l.world.runs) != runs {
					t.Errorf("a call ran:\n%s", l.world.show(err))
				}
			})
		})
	}
}

// A cancel that was recorded while nobody ran the turn ends it when it is resumed, whatever it was doing.
func TestRun_EndsAResumedTurnThatWasCancelled(t *testing.T) {
	t.Parallel()
	for at, want := range map[int][]string{
		1: {"ended cancelled cancelled"},
		2: {"finished 0/0 lookup error cancelled", "ended cancelled cancelled"},
		3: {"ended cancelled cancelled"},
		4: {"finished 1/0 charge indeterminate indeterminate", "ended indeterminate cancelled"},
		5: {"ended cancelled cancelled"},
	} {
		t.Run(fmt.Sprintf("killed at write %d", at), func(t *testing.T) {
			t.Parallel()
			_, s := load(t, "testdata/turns/steps.txtar")
			synctest.Test(t, func(t *testing.T) {
				l := newLife(t, s)
				_ = l.work(l.kill(true), at)
				if err := l.ledger.append([]fact.Fact{&fact.Cancelled{At: time.Now()}}); err != nil {
					t.Fatal(err)
				}
				before := len(l.world.log)
				err := l.work(fault{}, 0)
				checkWhole(t, l.world, l.ledger, err)
				wantLines(t, l.world.show(err), want)
				if l.world.log = l.world.log[before:]; strings.Contains(l.world.show(nil), " ask ") || strings.Contains(l.world.show(nil), "s run ") {
					t.Errorf("something began:\n%s", l.world.show(err))
				}
			})
		})
	}
}

// A model whose error is nothing but the echo of the worker's stop must not end the turn.
func TestRun_TakesAnErrorAfterTheStopForItsEcho(t *testing.T) {
	t.Parallel()
	_, s := load(t, "testdata/turns/answer.txtar")
	for _, cause := range []error{errStopped, ErrCancelled} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, l := newWorld(s), newLedger(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				model := modelOf(func(context.Context) error {
					cancel(cause)
					return schemas.Errorf(schemas.CodeModelUnavailable, "the connection was closed")
				})
				loop := New(Config{Worker: "w1", Now: time.Now, CheckOutput: checkOutput}, model, w)
				err := loop.Run(ctx, &Turn{Accepted: s.accepted(w.begin), Agent: s.agent(), Known: NewKnown(), Journal: &journal{world: w, ledger: l}, Gate: w})
				end := l.ended(t)
				if errors.Is(cause, ErrCancelled) != (end != nil) || end != nil && end.Status != schemas.StatusCancelled || end == nil && !errors.Is(err, cause) {
					t.Errorf("Run gives %v, ended %+v", err, end)
				}
			})
		})
	}
}

type modelOf func(context.Context) error

func (m modelOf) Respond(ctx context.Context, _ *fact.Request) (*fact.Response, error) {
	return nil, m(ctx)
}

func TestReplay_RefusesAJournalThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, facts := range map[string][]fact.Fact{
		"a step is missing":  {&fact.Accepted{}, &fact.Responded{Response: fact.Response{Step: 1}}},
		"a step comes twice": {&fact.Accepted{}, &fact.Responded{}, &fact.Responded{}},
		"the turn has ended": {&fact.Accepted{}, &fact.Ended{}},
	} {
		var frames []fact.Frame
		for _, f := range facts {
			frames = append(frames, fact.Frame{Fact: f})
		}
		if _, err := Replay(frames); err == nil {
			t.Errorf("%s: Replay has no error", name)
		}
	}
}

func TestRun_CountsTheWorkersThatHadAHandInIt(t *testing.T) {
	t.Parallel()
	_, s := load(t, "testdata/turns/steps.txtar")
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, s)
		if err := l.ledger.append([]fact.Fact{&fact.Accepted{Worker: "w0"}}); err != nil {
			t.Fatal(err)
		}
		if err := l.work(fault{}, 0); err != nil {
			t.Fatal(err)
		}
		end := l.ledger.ended(t)
		if end.Workers != 2 || end.Worker != "w1" || end.Duration < 0 {
			t.Errorf("the end names %d workers, %s, after %s, want 2 and w1", end.Workers, end.Worker, end.Duration)
		}
	})
}
