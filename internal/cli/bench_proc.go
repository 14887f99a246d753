package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process of this program that prints a line when it is ready.
type child struct {
	cmd   *exec.Cmd
	lines chan string
}

// startChild starts this program again with other arguments. It dies with this process.
func startChild(ctx context.Context, env Env, extra []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...) //nolint:gosec // It is this program.
	cmd.Env, cmd.Stderr = append(withoutSettings(env.Environ), extra...), env.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(args, " "), err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(args, " "), err)
	}
	c := &child{cmd: cmd, lines: make(chan string, 16)}
	go func() { // It ends with the child's output, which stop waits for.
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case c.lines <- s.Text():
			default: // Nobody reads what comes after the first lines.
			}
		}
	}()
	return c, nil
}

// withoutSettings is an environment without LATHE_ settings, save those for tests.
func withoutSettings(environ []string) []string {
	var out []string
	for _, pair := range environ {
		if !strings.HasPrefix(pair, "LATHE_") || strings.HasPrefix(pair, "LATHE_TEST_") {
			out = append(out, pair)
		}
	}
	return out
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// line returns the next line that the child prints.
func (c *child) line(ctx context.Context) (string, error) {
	select {
	case s, ok := <-c.lines:
		if !ok {
			return "", errChildEnded
		}
		return s, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// stop ends the child as a signal would, or by force after ten seconds.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(os.Interrupt)                                      // It may have ended already.
	kill := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() }) // It may have ended already.
	defer kill.Stop()
	for range c.lines { // Drained so that the child can write and end.
		continue
	}
	_ = c.cmd.Wait() // How it ended is of no interest any more.
}

// clockTicks is USER_HZ, which Linux fixes at 100 for all user space.
const clockTicks = 100

// cpuOf is the CPU time that processes have used so far.
func cpuOf(pids ...int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
		}
		// The command's name, in brackets, may hold spaces: fields are counted behind it.
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) < 13 {
			return 0, errors.New("read the CPU time of a process: unknown form of /proc/pid/stat")
		}
		for _, f := range fields[11:13] {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
			}
			sum += time.Duration(n) * time.Second / clockTicks
		}
	}
	return sum, nil
}

// peakOf is the largest resident memory that a process has had, in MB.
func peakOf(pid int) (float64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			return kb / 1000, nil
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: no VmHWM", pid)
}
