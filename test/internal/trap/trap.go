// Package trap makes a worker of the tests signal itself at a step of the commit cycle.
package trap

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/consumer/txn"
)

// A trap makes the worker signal itself when it passes a point of the commit cycle for the n-th time. It is written
//
//	kill:before:flush:2   or   stop:after:offsets:1
//
// and the points are take and settle, and the steps of txn.
type trap struct {
	signal syscall.Signal
	point  string
	n      int
}

func parseTraps(text string) ([]trap, error) {
	var out []trap
	for one := range strings.SplitSeq(text, ",") {
		if one == "" {
			continue
		}
		parts := strings.Split(one, ":")
		if len(parts) != 4 {
			return nil, fmt.Errorf("read the trap %q: want signal:when:point:n", one)
		}
		n, err := strconv.Atoi(parts[3])
		if err != nil {
			return nil, fmt.Errorf("read the trap %q: %w", one, err)
		}
		t := trap{signal: syscall.SIGKILL, point: parts[1] + ":" + parts[2], n: n}
		if parts[0] == "stop" {
			t.signal = syscall.SIGSTOP
		}
		out = append(out, t)
	}
	return out, nil
}

// Env is the variable that test workers read their traps from; the settings take LATHE_TEST_ names as not theirs.
const Env = "LATHE_TEST_SIGNALS"

// Hooks are the hooks that make traps snap: one or several, with commas between. An empty text gives none.
func Hooks(text string) (consumer.Hooks, error) {
	traps, err := parseTraps(text)
	if err != nil || len(traps) == 0 {
		return consumer.Hooks{}, err
	}
	p := &passings{traps: traps, count: make(map[string]int)}
	at := func(point string) func(context.Context) { return func(context.Context) { p.pass(point) } }
	return consumer.Hooks{
		Txn: txn.Hooks{
			Before: func(_ context.Context, s txn.Step) { p.pass("before:" + s.String()) },
			After:  func(_ context.Context, s txn.Step) { p.pass("after:" + s.String()) },
		},
		BeforeTake: at("before:take"), BeforeSettle: at("before:settle"), AfterSettle: at("after:settle"),
	}, nil
}

// passings counts how often each point was passed.
type passings struct {
	traps []trap

	mu    sync.Mutex
	count map[string]int
}

func (p *passings) pass(point string) {
	p.mu.Lock()
	p.count[point]++
	n := p.count[point]
	p.mu.Unlock()
	for _, t := range p.traps {
		if t.point == point && t.n == n {
			SignalSelf(t.signal)
		}
	}
}

// SignalSelf sends the signal to this very thread, so that the process does not take another step before it is stopped.
func SignalSelf(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), s); err != nil {
		panic(err)
	}
}

// Points are all places that a trap can be at: before and after each numbered step of the commit cycle.
func Points() []string {
	out := []string{"before:take"}
	for step := txn.StepBegin; step <= txn.StepEnd; step++ {
		out = append(out, "before:"+step.String(), "after:"+step.String())
	}
	return append(out, "before:settle", "after:settle")
}
