// Package proc runs worker processes for tests: it starts them so that they die with the test, signals and kills them, asks their
// admin port, and reads their log. A Process is safe for concurrent use.
package proc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says which process to start.
type Config struct {
	// Name is the worker's; its log is a file in Dir that begins with it.
	Name string
	Dir  string
	// Binary is run with Args in Env.
	Binary string
	Args   []string
	Env    []string
	// OwnHostName puts the process into a namespace of its own, where it can take another host name.
	OwnHostName bool
}

// Process is a worker process.
type Process struct {
	Name    string
	LogPath string
	Began   time.Time

	cmd   *exec.Cmd
	ended chan struct{}
	mu    struct {
		sync.Mutex
		admin string
	}
}

// Start starts a process. It is killed when ctx ends, and when this process does. A machine that forbids host names of its own
// gives an error that wraps syscall.EPERM.
func Start(ctx context.Context, cfg Config) (*Process, error) {
	log, err := os.CreateTemp(cfg.Dir, cfg.Name+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("make the log of worker %s: %w", cfg.Name, err)
	}
	p := &Process{Name: cfg.Name, LogPath: log.Name(), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, cfg.Binary, cfg.Args...) //nolint:gosec // the test names the binary
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = cfg.Env, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if cfg.OwnHostName {
		ownHostName(p.cmd.SysProcAttr)
	}
	if err := p.launch(log); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", cfg.Name, err)
	}
	return p, nil
}

// launch begins the process on a thread that lives as long as it, because the kernel kills it with that thread.
func (p *Process) launch(log *os.File) error {
	began := make(chan error, 1)
	go func() {
		defer close(p.ended)
		defer func() { _ = log.Close() }()
		runtime.LockOSThread()
		p.Began = time.Now()
		err := p.cmd.Start()
		began <- err
		if err == nil {
			_ = p.cmd.Wait() // How it ended is asked of ProcessState.
		}
	}()
	return <-began
}

// ownHostName puts the process into a namespace of its own, as a pod has one.
func ownHostName(attr *syscall.SysProcAttr) {
	attr.Cloneflags = syscall.CLONE_NEWUTS
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal worker %s: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process at once, if it still runs, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // It may have ended by itself.
	<-p.ended
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Code is the exit status of a process that has ended; a signal that ended it is negative.
func (p *Process) Code() int {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return 1
	case status.Signaled():
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// End says how the process ended, or that it runs.
func (p *Process) End() string { return p.cmd.ProcessState.String() }

// Stopped reports whether the process has been stopped by a signal and not continued.
func (p *Process) Stopped() bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID()), "stat"))
	return err == nil && strings.Contains(string(stat), ") T ")
}

// Logged returns the first line of the log with the message, or nil.
func (p *Process) Logged(message string) map[string]any {
	raw, _ := os.ReadFile(p.LogPath)
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		if !bytes.Contains(lines.Bytes(), []byte(message)) {
			continue
		}
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == message {
			return line
		}
	}
	return nil
}

// Probe asks the admin port, and returns status 0 when nobody answers.
func (p *Process) Probe(ctx context.Context, path string) (status int, body string) {
	addr := p.admin()
	if addr == "" {
		return 0, ""
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return 0, ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

// admin is the address of the admin port, which stands in the log.
func (p *Process) admin() string {
	p.mu.Lock()
	known := p.mu.admin
	p.mu.Unlock()
	if known != "" {
		return known
	}
	addr, ok := p.Logged("worker starts")["admin_addr"].(string)
	if !ok {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.admin = addr
	return addr
}

// Race is how the race detector begins.
const Race = "WARNING: DATA RACE"

// Faults are what no worker may ever print.
func (p *Process) Faults() []string {
	raw, _ := os.ReadFile(p.LogPath)
	var out []string
	for _, bad := range []string{Race, "panic:", "fatal error:"} {
		if bytes.Contains(raw, []byte(bad)) {
			out = append(out, bad)
		}
	}
	return out
}

// Reason is what the process says of its end, on one line: what stands behind its log, or nothing.
func (p *Process) Reason() string {
	raw, _ := os.ReadFile(p.LogPath)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	behind := lines[1+lastLogged(lines):]
	return strings.Join(behind, "; ")
}

// lastLogged is the index of the last line that is of the log, -1 when there is none.
func lastLogged(lines []string) int {
	for i, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "{") {
			return i
		}
	}
	return -1
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	raw, _ := os.ReadFile(p.LogPath)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// Environ is this process's environment without the settings of workers, and then set.
func Environ(set map[string]string) []string {
	var out []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "LATHE_") {
			out = append(out, pair)
		}
	}
	for name, value := range set {
		out = append(out, name+"="+value)
	}
	return append(out, "GORACE=atexit_sleep_ms=0") // Else each child sleeps a second under the race detector.
}
