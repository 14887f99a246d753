package e2e_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lathe-run/lathe/test/internal/proc"
)

// process is a worker process.
type process struct {
	*bed
	*proc.Process

	stopped time.Time
}

// start starts a worker with an instance id. Changes are settings as name=value; an empty value takes one away.
func (b *bed) start(instance string, changes ...string) *process {
	b.Helper()
	set := map[string]string{"LATHE_INSTANCE_ID": instance, "LATHE_DATA_DIR": filepath.Join(b.dir, "data-"+instance)}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, "=")
		set[name] = value
	}
	p, err := proc.Start(b.ctx, proc.Config{
		Name: instance, Dir: b.dir, Binary: os.Args[0], Args: []string{"run"}, Env: b.environ(set), OwnHostName: set[envHost] != "",
	})
	if set[envHost] != "" && errors.Is(err, syscall.EPERM) {
		b.Skipf("needs processes with host names of their own, which this machine forbids: %v", err)
	}
	b.must(err)
	w := &process{bed: b, Process: p}
	b.Cleanup(func() {
		w.kill()
		w.review()
	})
	return w
}

func (p *process) signal(s syscall.Signal) {
	p.Helper()
	p.must(p.Signal(s))
}

// kill ends the process at once, if it still runs.
func (p *process) kill() { p.Kill() }

// wait waits for the end of the process and returns its exit status; a signal that ended it is negative.
func (p *process) wait() int {
	p.Helper()
	select {
	case <-p.Ended():
	case <-time.After(patience):
		p.Fatalf("worker %s does not end\n%s", p.Name, p.tail())
	}
	return p.Code()
}

// drain asks the process to stop and expects that it ends clean.
func (p *process) drain() {
	p.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		p.Fatalf("worker %s did not drain: exit status %d\n%s", p.Name, code, p.tail())
	}
}

// awaitKilled waits until the process has killed itself.
func (p *process) awaitKilled() {
	p.Helper()
	if code := p.wait(); code != -int(syscall.SIGKILL) {
		p.Fatalf("worker %s ended with %d, not by its trap\n%s", p.Name, code, p.tail())
	}
}

// awaitStopped waits until the process has stopped.
func (p *process) awaitStopped() {
	p.Helper()
	p.eventually("worker "+p.Name+" stops", p.Stopped)
	p.stopped = time.Now()
}

// logged returns the first line of the log with the message, or nil.
func (p *process) logged(message string) map[string]any { return p.Logged(message) }

// allLogged returns the lines of the log with the message.
func (p *process) allLogged(message string) []map[string]any {
	p.Helper()
	raw, err := os.ReadFile(p.LogPath)
	p.must(err)
	var out []map[string]any
	for text := range strings.Lines(string(raw)) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == message {
			out = append(out, line)
		}
	}
	return out
}

// probe asks the admin port, and returns status 0 when nobody answers.
func (p *process) probe(path string) (status int, body string) { return p.Probe(p.ctx, path) }

// ready waits until the worker says that it is.
func (p *process) ready() *process {
	p.Helper()
	p.eventually("worker "+p.Name+" is ready", func() bool {
		status, _ := p.probe("/readyz")
		return status == http.StatusOK
	})
	return p
}

// awaitPartitions waits until the worker runs at least one partition.
func (p *process) awaitPartitions() {
	p.Helper()
	p.eventually("worker "+p.Name+" runs a partition", func() bool {
		_, body := p.probe("/readyz?verbose")
		return strings.Contains(body, `"state": "running"`)
	})
}

// review looks for what no worker may ever print, and shows the log of a failed test.
func (p *process) review() {
	for _, bad := range p.Faults() {
		p.Errorf("worker %s: %s\n%s", p.Name, bad, p.tail())
	}
	if p.Failed() || testing.Verbose() {
		p.Logf("log of worker %s, process %d, %s:\n%s", p.Name, p.PID(), p.End(), p.tail())
	}
}

// tail is the end of the log.
func (p *process) tail() string { return p.Tail() }
