package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a worker process.
type process struct {
	*bed

	name    string
	cmd     *exec.Cmd
	logPath string
	began   time.Time
	ended   chan struct{}
}

// start starts a worker with an instance id. Changes are settings as name=value; an empty value takes one away.
func (b *bed) start(instance string, changes ...string) *process {
	b.Helper()
	set := map[string]string{"LATHE_INSTANCE_ID": instance, "LATHE_DATA_DIR": filepath.Join(b.dir, "data-"+instance)}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, "=")
		set[name] = value
	}
	log, err := os.CreateTemp(b.dir, instance+"-*.log")
	b.must(err)
	p := &process{bed: b, name: instance, logPath: log.Name(), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(b.ctx, os.Args[0], "run")
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = b.environ(set), log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if set[envHost] != "" {
		ownHostName(p.cmd.SysProcAttr)
	}
	err = p.launch(log)
	if set[envHost] != "" && errors.Is(err, syscall.EPERM) {
		b.Skipf("needs processes with host names of their own, which this machine forbids: %v", err)
	}
	b.must(err)
	b.Cleanup(func() {
		p.kill()
		p.review()
	})
	return p
}

// launch begins the process on a thread that lives as long as it, because the kernel kills it with that thread.
func (p *process) launch(log *os.File) error {
	began := make(chan error, 1)
	go func() {
		defer close(p.ended)
		defer log.Close()
		runtime.LockOSThread()
		p.began = time.Now()
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

func (p *process) signal(s syscall.Signal) {
	p.Helper()
	p.must(p.cmd.Process.Signal(s))
}

// kill ends the process at once, if it still runs.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // It may have ended by itself.
	<-p.ended
}

// wait waits for the end of the process and returns its exit status; a signal that ended it is negative.
func (p *process) wait() int {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Fatalf("worker %s does not end\n%s", p.name, p.tail())
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		p.Fatalf("no status of worker %s", p.name)
	}
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// drain asks the process to stop and expects that it ends clean.
func (p *process) drain() {
	p.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		p.Fatalf("worker %s did not drain: exit status %d\n%s", p.name, code, p.tail())
	}
}

// awaitKilled waits until the process has killed itself.
func (p *process) awaitKilled() {
	p.Helper()
	if code := p.wait(); code != -int(syscall.SIGKILL) {
		p.Fatalf("worker %s ended with %d, not by its trap\n%s", p.name, code, p.tail())
	}
}

// awaitStopped waits until the process has stopped.
func (p *process) awaitStopped() {
	p.Helper()
	p.eventually("worker "+p.name+" stops", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}

// logged returns the first line of the log with the message, or nil.
func (p *process) logged(message string) map[string]any {
	raw, _ := os.ReadFile(p.logPath)
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == message {
			return line
		}
	}
	return nil
}

// probe asks the admin port, and returns status 0 when nobody answers.
func (p *process) probe(path string) (status int, body string) {
	line := p.logged("worker starts")
	if line == nil {
		return 0, ""
	}
	req, err := http.NewRequestWithContext(p.ctx, http.MethodGet, fmt.Sprintf("http://%v%s", line["admin_addr"], path), nil)
	p.must(err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

// ready waits until the worker says that it is.
func (p *process) ready() *process {
	p.Helper()
	p.eventually("worker "+p.name+" is ready", func() bool {
		status, _ := p.probe("/readyz")
		return status == http.StatusOK
	})
	return p
}

// awaitPartitions waits until the worker runs at least one partition.
func (p *process) awaitPartitions() {
	p.Helper()
	p.eventually("worker "+p.name+" runs a partition", func() bool {
		_, body := p.probe("/readyz?verbose")
		return strings.Contains(body, `"state": "running"`)
	})
}

// review looks for what no worker may ever print, and shows the log of a failed test.
func (p *process) review() {
	raw, _ := os.ReadFile(p.logPath)
	for _, bad := range []string{"WARNING: DATA RACE", "panic:", "fatal error:"} {
		if bytes.Contains(raw, []byte(bad)) {
			p.Errorf("worker %s: %s\n%s", p.name, bad, p.tail())
		}
	}
	if p.Failed() || testing.Verbose() {
		p.Logf("log of worker %s, process %d, %v:\n%s", p.name, p.cmd.Process.Pid, p.cmd.ProcessState, p.tail())
	}
}

// tail is the end of the log.
func (p *process) tail() string {
	raw, _ := os.ReadFile(p.logPath)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
