package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// errBrokerDied is the end of a broker that nobody asked to end.
var errBrokerDied = errors.New("a broker died")

// broker is one broker process and its directory.
type broker struct {
	inst installation
	id   int
	addr string
	nets []string // where the listeners of Config.Nets are
	heap string
	dir  string // holds server.properties, log4j2.xml, broker.log and data

	mu struct {
		sync.Mutex
		cmd    *exec.Cmd
		exited chan struct{} // closed when cmd has ended; nil before the first start
		paused bool
	}
}

// java makes a command of the JVM with the options that all tools of Kafka share. The broker is this process itself and
// no script, so that one signal reaches it.
func (b *broker) java(ctx context.Context, args ...string) *exec.Cmd {
	options := append([]string{
		"-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + filepath.Join(b.dir, "log4j2.xml"),
		"-cp", filepath.Join(b.inst.libs, "*"),
	}, args...)
	//nolint:gosec // the program and its arguments are made here, not from input
	cmd := exec.CommandContext(ctx, b.inst.java, options...)
	cmd.Dir = b.dir
	return cmd
}

func (b *broker) format(ctx context.Context, cfg Config) error {
	args := []string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "kafka.tools.StorageTool", "format",
		"-t", clusterID, "-c", filepath.Join(b.dir, "server.properties"),
	}
	if cfg.TransactionVersion > 0 {
		args = append(args, "--feature", fmt.Sprintf("transaction.version=%d", cfg.TransactionVersion))
	}
	if out, err := b.java(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format broker %d: %w\n%s", b.id, err, out)
	}
	return nil
}

// start begins the broker process. The kernel kills it when the thread that began it ends, so that thread is held by a
// goroutine which waits for the broker.
func (b *broker) start(ctx context.Context) error {
	log, err := os.OpenFile(b.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of broker %d: %w", b.id, err)
	}
	// A broker ends by a signal, not with a context: a shared one outlives the test that asked for it first.
	cmd := b.java(context.WithoutCancel(ctx), "-Xmx"+b.heap, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"kafka.Kafka", filepath.Join(b.dir, "server.properties"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(exited)
		defer func() { _ = log.Close() }()
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its end is seen through exited; the reason is in the log
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start broker %d: %w", b.id, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.cmd, b.mu.exited, b.mu.paused = cmd, exited, false
	return nil
}

// running returns the live process and the channel that its end closes, or nil.
func (b *broker) running() (*exec.Cmd, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.cmd == nil {
		return nil, nil
	}
	select {
	case <-b.mu.exited:
		return nil, nil
	default:
		return b.mu.cmd, b.mu.exited
	}
}

func (b *broker) pid() int {
	if cmd, _ := b.running(); cmd != nil {
		return cmd.Process.Pid
	}
	return 0
}

// kill ends the whole process group of the broker at once and waits for it.
func (b *broker) kill() {
	if cmd, exited := b.running(); cmd != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	}
}

// shutdown lets the broker hand over its leaderships and end.
func (b *broker) shutdown(ctx context.Context) error {
	cmd, exited := b.running()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("shut down broker %d: %w", b.id, err)
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut down broker %d: %w", b.id, context.Cause(ctx))
	}
}

// died returns an error with the end of the log if the broker does not run.
func (b *broker) died() error {
	if b.pid() != 0 {
		return nil
	}
	return fmt.Errorf("%w: broker %d\n%s", errBrokerDied, b.id, b.logTail())
}

func (b *broker) logPath() string { return filepath.Join(b.dir, "broker.log") }

// logTail is the end of the log, enough to see why a broker did not start.
func (b *broker) logTail() string {
	const lines = 30
	raw, err := os.ReadFile(b.logPath())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
