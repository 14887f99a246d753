package e2e_test

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

// trapHooks are the hooks that make the traps snap.
func trapHooks(text string) (consumer.Hooks, error) {
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
			signalSelf(t.signal)
		}
	}
}

// signalSelf sends the signal to this very thread, so that the process does not take another step before it is stopped.
func signalSelf(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), s); err != nil {
		panic(err)
	}
}

// takeHostName gives this process the host name, if there is one to take: it is in a namespace of its own then.
func takeHostName(name string) error {
	if name == "" {
		return nil
	}
	if err := syscall.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("take the host name %s: %w", name, err)
	}
	return nil
}
