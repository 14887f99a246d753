package tools

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

var errSecret = errors.New("secret: password is 1234")

// failing is a tool that fails with the errors in turn, then answers.
func failing(errs ...error) func(*Context, struct{}) (string, error) {
	return func(c *Context, _ struct{}) (string, error) {
		if n := c.Attempt(); n <= len(errs) {
			return "", errs[n-1]
		}
		return "done", nil
	}
}

func TestExecute_FillsTheResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRuntime(t, Deps{Program: "wired"})
		var saw []string
		tool := Define("lookup", func(c *Context, in orderArgs) (order, error) {
			c.EmitStatus("looking")
			saw = []string{
				c.TurnID(), c.SessionID(), c.CallID(), c.IdempotencyKey(), strconv.Itoa(c.Attempt()), c.PrincipalID(), c.ProjectID(), From[string](c),
			}
			time.Sleep(time.Second)
			return order{ID: in.OrderID, Total: 12}, nil
		}, reads())
		b := bindAll(t, r, AgentBinding{}, tool)
		call := mustPrepare(t, b, "lookup", `{"reason":null,"order_id":"<7>"}`)
		inv := invocation()
		inv.EmitStatus = func(text string) { saw = append(saw, text) }
		got, err := b.Execute(t.Context(), call, inv)
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256([]byte(`{"order_id":"<7>","reason":null}`))
		want := fact.Result{
			Ref: fact.Ref{Step: 2, Position: 1}, CallID: "c1", Tool: b.Tools()[0], Status: schemas.StatusOK, Started: true,
			Output: []byte(`{"id":"<7>","total":12}`), Attempts: 1, Duration: time.Second, InputHash: hash[:],
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"t1", "s1", "c1", "t1/2/1", "1", "p", "j", "wired"}, saw); diff != "" {
			t.Errorf("the tool saw (-want +got):\n%s", diff)
		}
	})
}

// Every way to fail, for a tool that reads and for one that writes.
func TestExecute_NeverPaintsAnOutcomeBetterThanItIs(t *testing.T) {
	t.Parallel()
	safe := Safe(errors.New("no such order"))
	for _, tc := range []struct {
		name  string
		errs  []error
		retry int
		// read and write are status and code; attempts those of the tool that reads.
		read, write string
		attempts    int
		message     string
		forModel    string
	}{
		{"an error", []error{errSecret}, 0, "error tool_error", "outcome_unknown tool_error", 1, "the tool failed", ""},
		{"a wrapped error, marked safe", []error{fmt.Errorf("x: %w", safe)}, 0, "error tool_error", "outcome_unknown tool_error", 1, "the tool failed", "no such order"},
		{"retried", []error{errSecret, errSecret}, 2, "ok ", "ok ", 3, "", ""},
		{"retried in vain", []error{errSecret, errSecret}, 1, "error tool_error", "outcome_unknown tool_error", 2, "the tool failed", ""},
		{"fatal", []error{Fatal(errSecret)}, 3, "error tool_fatal", "outcome_unknown tool_fatal", 1, "the tool failed, and would fail again", ""},
		{"poison", []error{Poison(safe)}, 3, "error tool_poison", "outcome_unknown tool_poison", 1, "the tool cannot work with these arguments", "no such order"},
		{"refusal", []error{fmt.Errorf("x: %w", Refusal("closed on Sundays"))}, 3, "denied tool_refused", "denied tool_refused", 1, "the tool refused, nothing happened", "closed on Sundays"},
		{"nothing happened", []error{NotExecuted(errSecret)}, 0, "error not_executed", "error not_executed", 1, "the tool failed before anything happened", ""},
		{"nothing happened and is retried", []error{NotExecuted(errSecret)}, 1, "ok ", "ok ", 2, "", ""},
		{"nothing happened, fatally", []error{Fatal(NotExecuted(errSecret))}, 1, "error tool_fatal", "error tool_fatal", 1, "the tool failed, and would fail again", ""},
		// The second attempt did nothing, but the first may have.
		{"nothing happened the second time", []error{errSecret, NotExecuted(errSecret)}, 1, "error not_executed", "outcome_unknown not_executed", 2, "the tool failed before anything happened", ""},
		{"refused the second time", []error{errSecret, Refusal("no")}, 1, "denied tool_refused", "outcome_unknown tool_refused", 2, "the tool refused, nothing happened", "no"},
	} {
		for _, effect := range []schemas.Effect{schemas.EffectRead, schemas.EffectWrite, schemas.EffectHost} {
			t.Run(tc.name+", "+string(effect), func(t *testing.T) {
				t.Parallel()
				r, logs := newRuntime(t, Deps{})
				b := bindAll(t, r, AgentBinding{}, Define("tool", failing(tc.errs...), Options{
					Description: "d", Effect: effect, Idempotency: schemas.SafeToRetry, Retry: Retries(tc.retry),
				}))
				got := execute(t, t.Context(), b, mustPrepare(t, b, "tool", ""))
				want := tc.read
				if effect != schemas.EffectRead {
					want = tc.write
				}
				if status := got.Status + " " + string(got.Code); status != want {
					t.Errorf("got %s, want %s", status, want)
				}
				message := tc.message
				if got.InDoubt() {
					message += "; the call may have taken effect"
				}
				if got.Message != message || got.ForModel != tc.forModel || got.Attempts != tc.attempts || !got.Started {
					t.Errorf("got %q, %q, %d attempts, started %v", got.Message, got.ForModel, got.Attempts, got.Started)
				}
				if strings.Contains(fmt.Sprint(got), "secret") {
					t.Errorf("the result holds the tool's raw text: %+v", got)
				}
				if len(tc.errs) > 0 && !strings.Contains(logs.String(), "idempotency_key=t1/2/1") {
					t.Errorf("the log does not name the call: %s", logs)
				}
			})
		}
	}
}

func TestExecute_NeverRetriesWhatTheRecordSaysRunsAtMostOnce(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	b := bindAll(t, r, AgentBinding{}, Define("tool", failing(errSecret), with(reads(), func(o *Options) { o.Retry = Retries(3) })))
	call := mustPrepare(t, b, "tool", "")
	call.Tool.Idempotency, call.Tool.Effect = schemas.AtMostOnce, schemas.EffectWrite
	got := execute(t, t.Context(), b, call)
	if got.Attempts != 1 || got.Status != schemas.StatusOutcomeUnknown {
		t.Errorf("got %s after %d attempts", got.Status, got.Attempts)
	}
}

// What an attempt does to its arguments is its own affair: the next one gets what the model asked for, and so does the tool that runs
// a call which was prepared by another process.
func TestExecute_EachAttemptGetsTheArgumentsAsTheyCame(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	var got []string
	type args struct {
		IDs []string `json:"ids"`
	}
	b := bindAll(t, r, AgentBinding{}, Define("tool", func(_ *Context, in args) (string, error) {
		got = append(got, in.IDs[0])
		in.IDs[0] = "changed"
		return "", errSecret
	}, with(reads(), func(o *Options) { o.Retry = Retries(2) })))
	call := mustPrepare(t, b, "tool", `{"ids":["o-1"]}`)
	execute(t, t.Context(), b, call)
	call.Decoded = nil
	execute(t, t.Context(), b, call)
	if want := slices.Repeat([]string{"o-1"}, 6); !slices.Equal(got, want) {
		t.Errorf("the attempts were given %q, want %q", got, want)
	}
}

func TestExecute_GivesUpATimedOutCallAndWaitsForItAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, logs := newRuntime(t, Deps{})
		stuck := Define("stuck", func(c *Context, _ struct{}) (string, error) {
			time.Sleep(time.Hour)
			return "late", nil
		}, with(reads(), func(o *Options) { o.Timeout, o.Retry = time.Second, Retries(1) }))
		b := bindAll(t, r, AgentBinding{}, stuck)
		got := execute(t, t.Context(), b, mustPrepare(t, b, "stuck", ""))
		if got.Code != schemas.CodeTimeout || got.Attempts != 2 || got.Duration != 2*time.Second || got.Message != "no answer within 1s" {
			t.Errorf("got %+v", got)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Close(short); err == nil || !strings.Contains(err.Error(), "wait for 2 calls") {
			t.Errorf("close gave %v, want the two calls that do not return", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("close when all have returned: %v", err)
		}
		if n := strings.Count(logs.String(), "thrown away"); n != 2 {
			t.Errorf("%d late answers were thrown away, want 2", n)
		}
		_, err := b.Execute(t.Context(), mustPrepare(t, b, "stuck", ""), invocation())
		if _, ok := errors.AsType[*NotBegunError](err); !ok || !errors.Is(err, ErrClosed) {
			t.Errorf("a call after close gave %v", err)
		}
	})
}

// What an attempt leaves behind is used again only when it is over: an answer that comes late reaches neither the second attempt of
// its call nor another call.
func TestExecute_KeepsLateAnswersFromOtherCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type args struct {
			N int `json:"n"`
		}
		r, _ := newRuntime(t, Deps{})
		b := bindAll(t, r, AgentBinding{}, Define("tool", func(c *Context, in args) (args, error) {
			if in.N%3 == 0 && c.Attempt() == 1 {
				time.Sleep(1500 * time.Millisecond)
				in.N = -1
			}
			time.Sleep(time.Duration(in.N%7) * time.Millisecond)
			return in, nil
		}, with(reads(), func(o *Options) { o.Timeout, o.Retry = time.Second, Retries(1) })))
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := range 50 {
					want := fmt.Sprintf(`{"n":%d}`, 4*i+worker)
					result, err := b.Execute(t.Context(), mustPrepare(t, b, "tool", want), invocation())
					if err != nil || string(result.Output) != want {
						t.Errorf("%s gave %+v, %v", want, result, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestExecute_TimesOut(t *testing.T) {
	t.Parallel()
	obedient := func(c *Context, _ struct{}) (string, error) {
		<-c.Done()
		return "", c.Err()
	}
	informed := func(c *Context, _ struct{}) (string, error) {
		<-c.Done()
		return "", NotExecuted(c.Err())
	}
	for _, tc := range []struct {
		name   string
		run    func(*Context, struct{}) (string, error)
		effect schemas.Effect
		want   []string
	}{
		{"a tool that reads", obedient, schemas.EffectRead, []string{"error timeout"}},
		{"a tool that writes", obedient, schemas.EffectWrite, []string{"outcome_unknown timeout"}},
		// The answer and the timer come at once; both readings are true.
		{"a tool that knows that nothing happened", informed, schemas.EffectWrite, []string{"error not_executed", "outcome_unknown timeout"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := newRuntime(t, Deps{})
				b := bindAll(t, r, AgentBinding{}, Define("tool", tc.run, Options{Description: "d", Effect: tc.effect}))
				got := execute(t, t.Context(), b, mustPrepare(t, b, "tool", ""))
				status := got.Status + " " + string(got.Code)
				if !cmp.Equal(tc.want[0], status) && !cmp.Equal(tc.want[len(tc.want)-1], status) || got.Duration != 30*time.Second {
					t.Errorf("got %s after %s", status, got.Duration)
				}
			})
		})
	}
}

func TestJudge_CallsAnErrorAfterTheTimeATimeoutUnlessTheToolKnowsMore(t *testing.T) {
	t.Parallel()
	const inTime, late = time.Hour, 0
	judge := func(after time.Duration, r reply) reply {
		a := &attempt{}
		a.limited.Set(t.Context(), after, errTimeout)
		defer a.limited.Cancel()
		return a.judge(r)
	}
	for _, tc := range []struct {
		name  string
		after time.Duration
		err   error
		want  schemas.Code
	}{
		{"in time", inTime, errSecret, schemas.CodeToolError},
		{"late", late, context.DeadlineExceeded, schemas.CodeTimeout},
		{"late, nothing happened", late, NotExecuted(errSecret), schemas.CodeNotExecuted},
		{"late, fatal", late, Fatal(errSecret), schemas.CodeToolFatal},
		{"late, a panic", late, &panicError{value: "x"}, schemas.CodeToolPanic},
	} {
		if got := classify(judge(tc.after, reply{err: tc.err}).err).code; got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	if r := judge(late, reply{raw: []byte("1")}); r.err != nil {
		t.Errorf("an answer that is here became %v", r.err)
	}
}

func TestExecute_WaitsBetweenRetriesAsThePolicySays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		retry Retry
		want  []time.Duration
	}{
		{"no wait", Retries(2), []time.Duration{0, 0}},
		{"doubling", Retry{Retries: 3, Initial: time.Second}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		{"bounded", Retry{Retries: 3, Initial: time.Second, Multiplier: 10, Max: 5 * time.Second}, []time.Duration{time.Second, 5 * time.Second, 5 * time.Second}},
		{"jitter", Retry{Retries: 1, Initial: time.Second, Jitter: 0.5}, []time.Duration{750 * time.Millisecond}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := newRuntime(t, Deps{Rand: func() float64 { return 0.5 }})
				var at []time.Time
				b := bindAll(t, r, AgentBinding{}, Define("tool", func(*Context, struct{}) (string, error) {
					at = append(at, time.Now())
					return "", errSecret
				}, with(reads(), func(o *Options) { o.Retry = tc.retry })))
				execute(t, t.Context(), b, mustPrepare(t, b, "tool", ""))
				var got []time.Duration
				for i := 1; i < len(at); i++ {
					got = append(got, at[i].Sub(at[i-1]))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("waits (-want +got):\n%s", diff)
				}
			})
		})
	}
}

var errDrain = errors.New("the worker drains")

func TestExecute_LeavesACancelledCallToItsCaller(t *testing.T) {
	t.Parallel()
	echo := func(c *Context, _ struct{}) (string, error) {
		<-c.Done()
		return "", c.Err()
	}
	deaf := func(*Context, struct{}) (string, error) {
		time.Sleep(time.Minute)
		return "late", nil
	}
	wise := func(c *Context, _ struct{}) (string, error) {
		<-c.Done()
		time.Sleep(time.Nanosecond)
		return "", NotExecuted(c.Err())
	}
	for _, tc := range []struct {
		name string
		run  func(*Context, struct{}) (string, error)
	}{{"echoed", echo}, {"not heard", deaf}, {"answered too late", wise}, {"between retries", failing(errSecret, errSecret)}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := newRuntime(t, Deps{})
				b := bindAll(t, r, AgentBinding{}, Define("tool", tc.run, with(reads(), func(o *Options) {
					o.Retry = Retry{Retries: 1, Initial: time.Hour}
				})))
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(errDrain) })
				result, err := b.Execute(ctx, mustPrepare(t, b, "tool", ""), invocation())
				if !errors.Is(err, errDrain) {
					t.Errorf("got %+v, %v; want the cause", result, err)
				}
				if _, ok := errors.AsType[*NotBegunError](err); ok {
					t.Error("a call that ran is said not to have begun")
				}
				_, err = b.Execute(ctx, mustPrepare(t, b, "tool", ""), invocation())
				if _, ok := errors.AsType[*NotBegunError](err); !ok || !errors.Is(err, errDrain) {
					t.Errorf("a call under a cancelled context gave %v", err)
				}
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestExecute_MakesAPanicAnError(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		run  func(*Context, struct{}) (any, error)
		log  string
	}{
		{"a panic", func(*Context, struct{}) (any, error) { panic(errSecret) }, "execute_test.go"},
		{"the end of the goroutine", func(*Context, struct{}) (any, error) { runtime.Goexit(); return "never", nil }, "ended its goroutine"},
		{"deps of another type", func(c *Context, _ struct{}) (any, error) { return From[int](c), nil }, "wired with string, not int"},
		{"a panic while encoding", func(*Context, struct{}) (any, error) { return bomb{}, nil }, "bomb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, logs := newRuntime(t, Deps{Program: "x"})
			b := bindAll(t, r, AgentBinding{}, Define("tool", tc.run, writes()))
			got := execute(t, t.Context(), b, mustPrepare(t, b, "tool", ""))
			if got.Code != schemas.CodeToolPanic || got.Status != schemas.StatusOutcomeUnknown || strings.Contains(got.Message, "secret") {
				t.Errorf("got %+v", got)
			}
			if !strings.Contains(logs.String(), tc.log) {
				t.Errorf("the log lacks %q: %s", tc.log, logs)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

type bomb struct{}

func (bomb) MarshalJSON() ([]byte, error) { panic("bomb") }

func TestExecute_ChecksTheOutput(t *testing.T) {
	t.Parallel()
	schema := func(o *Options) { o.Output = []byte(`{"type":"object","required":["id"]}`) }
	small := func(o *Options) { o.MaxResultBytes = 10 }
	for _, tc := range []struct {
		name         string
		value        any
		change       func(*Options)
		output, code string
		message      string
	}{
		{"a string as it is", "<é>", nil, `"<é>"`, "", ""},
		{"sorted", map[string]any{"b": 1, "a": []int{}}, nil, `{"a":[],"b":1}`, "", ""},
		{"nil", nil, nil, `null`, "", ""},
		{"fits its schema", map[string]any{"id": 1}, schema, `{"id":1}`, "", ""},
		{"does not", map[string]any{}, schema, "", "invalid_output", "tool tool gave an invalid result: $.id: missing"},
		{"just fits", "12345678", small, `"12345678"`, "", ""},
		{"too large", "123456789", small, "", "result_too_large", "the result of tool has 11 bytes, the limit is 10"},
		{"no JSON", func() {}, nil, "", "invalid_output", "the result of tool tool has no JSON form"},
		{"too deep", deep(70), nil, "", "invalid_output", "tool tool gave an invalid result: nested more than 64 deep"},
	} {
		for _, o := range []Options{reads(), writes()} {
			t.Run(tc.name+", "+string(o.Effect), func(t *testing.T) {
				t.Parallel()
				r, _ := newRuntime(t, Deps{})
				if tc.change != nil {
					tc.change(&o)
				}
				b := bindAll(t, r, AgentBinding{}, Define("tool", func(*Context, struct{}) (any, error) { return tc.value, nil }, o))
				got := execute(t, t.Context(), b, mustPrepare(t, b, "tool", ""))
				want := fact.Result{Status: schemas.StatusOK, Code: schemas.Code(tc.code), Message: tc.message}
				if tc.output != "" {
					want.Output = []byte(tc.output)
				}
				if tc.code != "" {
					want.Status = schemas.StatusError
					if o.Effect == schemas.EffectWrite {
						want.Status = schemas.StatusOutcomeUnknown
						want.Message += "; the call may have taken effect"
					}
				}
				ignore := cmpopts.IgnoreFields(fact.Result{}, "Ref", "CallID", "Tool", "Started", "Attempts", "Duration", "InputHash")
				if diff := cmp.Diff(want, got, ignore); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func deep(n int) any {
	v := any(1)
	for range n {
		v = []any{v}
	}
	return v
}

func TestExecute_RefusesRecordedArgumentsThatNoLongerFit(t *testing.T) {
	t.Parallel()
	r, _ := newRuntime(t, Deps{})
	b := bindAll(t, r, AgentBinding{}, Define("refund", lookup, writes()))
	call := mustPrepare(t, b, "refund", `{"order_id":"1","reason":null}`)
	call.Input, call.Decoded = []byte(`{"order_id":1}`), nil // As it was recorded.
	got := execute(t, t.Context(), b, call)
	if got.Status != schemas.StatusError || got.Code != schemas.CodeInvalidArguments {
		t.Errorf("got %+v", got)
	}
	call.Tool.Name = "gone"
	_, err := b.Execute(t.Context(), call, invocation())
	if e, ok := errors.AsType[*schemas.Error](err); !ok || e.Code != schemas.CodeReplayInputChanged {
		t.Errorf("a tool that is gone gave %v", err)
	}
}

func TestSafeTexts_AreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 3000)
	if got := classify(Refusal(long)).forModel; len([]rune(got)) != maxReason {
		t.Errorf("a reason has %d characters", len([]rune(got)))
	}
	if got := classify(Safe(errors.New(long))).forModel; len([]rune(got)) != maxSafeText {
		t.Errorf("a safe text has %d characters", len([]rune(got)))
	}
	for _, err := range []error{Fatal(nil), Poison(nil), NotExecuted(nil), Safe(nil)} {
		if err != nil {
			t.Errorf("a mark on no error is %v", err)
		}
	}
}
