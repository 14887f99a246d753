package torture

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lathe-run/lathe/test/internal/oracle"
	"github.com/lathe-run/lathe/test/internal/proc"
	"github.com/lathe-run/lathe/test/internal/trap"
	"github.com/lathe-run/lathe/test/netcut"
	"github.com/lathe-run/lathe/test/torture/worker"
)

// Fleet are the workers. One that ends without being told to is started again, as Kubernetes would.
type Fleet struct {
	Members []*Member

	bed *Bed
	ctx context.Context //nolint:containedctx // that of the run, for processes that start again by themselves
	wg  sync.WaitGroup
}

// restartDelay is the pause before a worker that has ended is started again.
const restartDelay = 500 * time.Millisecond

func newFleet(b *Bed) *Fleet {
	f := &Fleet{bed: b}
	for i := range b.cfg.Workers {
		f.Members = append(f.Members, &Member{fleet: f, Name: fmt.Sprintf("w-%d", i)})
	}
	return f
}

// start starts every worker. They are killed when ctx ends.
func (f *Fleet) start(ctx context.Context) error {
	f.ctx = ctx
	for _, m := range f.Members {
		if err := m.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Pick picks a worker.
func (f *Fleet) Pick(rng *rand.Rand) *Member { return f.Members[rng.IntN(len(f.Members))] }

func (f *Fleet) killAll() {
	for _, m := range f.Members {
		m.Kill()
	}
	f.wg.Wait()
}

// live are the processes that run.
func (f *Fleet) live() []*proc.Process {
	var out []*proc.Process
	for _, m := range f.Members {
		if p := m.process(); p != nil {
			out = append(out, p)
		}
	}
	return out
}

// Member is one worker: an instance id and a data directory, and the process that has them now.
type Member struct {
	Name string

	fleet *Fleet
	mu    sync.Mutex
	proc  *proc.Process
	// wanted says that it should run; an end is its own then.
	wanted bool
	// trapped says that its process may kill itself.
	trapped bool
	// next says that it is of the next release.
	next bool
	// spoiled says that its disk was attacked, excused until when Pebble may panic for that.
	spoiled bool
	excused time.Time
}

// Data is the worker's data directory.
func (m *Member) Data() string { return filepath.Join(m.fleet.bed.dir, "data-"+m.Name) }

// Switches is the folder of the worker's switches.
func (m *Member) Switches() string { return worker.SwitchDir(m.fleet.bed.dir, m.Name) }

// Spoil notes that an attack on the worker's disk begins, whose damage may be found for so long.
func (m *Member) Spoil(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spoiled, m.excused = true, time.Now().Add(d)
}

func (m *Member) spoilt() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spoiled
}

// turnRelease makes the processes that are started from now on ones of the other release.
func (m *Member) turnRelease() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = !m.next
}

func (m *Member) binary() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next {
		return m.fleet.bed.cfg.Next
	}
	return m.fleet.bed.cfg.Binary
}

// Start starts the worker.
func (m *Member) Start() error { return m.start("") }

// StartTrapped starts the worker with a trap, see package trap; when it is killed by it, it is started again.
func (m *Member) StartTrapped(text string) error { return m.start(text) }

func (m *Member) start(traps string) error {
	p, err := m.spawn(m.Name, m.Data(), traps)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.proc, m.wanted, m.trapped = p, true, traps != ""
	m.mu.Unlock()
	m.fleet.wg.Go(func() { m.tend(p) })
	return nil
}

// spawn starts a process with the worker's instance id that nobody looks after.
func (m *Member) spawn(name, data, traps string) (*proc.Process, error) {
	b := m.fleet.bed
	set := b.settings()
	maps.Copy(set, map[string]string{
		"LATHE_INSTANCE_ID": m.Name, "LATHE_DATA_DIR": data,
		"LATHE_BROKERS": strings.Join(m.brokers(), ","),
		worker.EnvDir:   b.dir, worker.EnvSwitches: m.Switches(), trap.Env: traps,
	})
	return proc.Start(m.fleet.ctx, proc.Config{Name: name, Dir: b.dir, Binary: m.binary(), Args: []string{"run"}, Env: proc.Environ(set)})
}

// net is the worker's network, nil when it has none.
func (m *Member) net() *netcut.Net {
	nets := m.fleet.bed.Brokers.Nets
	if len(nets) == 0 {
		return nil
	}
	return nets[slices.Index(m.fleet.Members, m)%len(nets)]
}

// brokers are the addresses that the worker knows.
func (m *Member) brokers() []string {
	if n := m.net(); n != nil {
		return n.Addrs()
	}
	return m.fleet.bed.Brokers.Addrs
}

// process is the process that runs, or nil.
func (m *Member) process() *proc.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil {
		return nil
	}
	select {
	case <-m.proc.Ended():
		return nil
	default:
		return m.proc
	}
}

// PID is the process id, 0 when none runs.
func (m *Member) PID() int {
	if p := m.process(); p != nil {
		return p.PID()
	}
	return 0
}

// Signal sends a signal to the process, if one runs.
func (m *Member) Signal(s syscall.Signal) {
	if p := m.process(); p != nil {
		_ = p.Signal(s) // It may just have ended.
	}
}

// Stopped reports whether the process is stopped by a signal.
func (m *Member) Stopped() bool {
	p := m.process()
	return p != nil && p.Stopped()
}

// Kill ends the worker with SIGKILL and leaves it so.
func (m *Member) Kill() {
	if p := m.release(); p != nil {
		m.fleet.bed.watch.scrape(m.fleet.ctx, p)
		p.Kill()
		m.fleet.bed.log.count(countKills)
	}
}

// release takes the process out of the care of tend, so that its end is meant.
func (m *Member) release() *proc.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = false
	p := m.proc
	m.proc = nil
	return p
}

// drainLimit is how long a clean stop may take: the budget for calls, that for the last commit, and for what is closed.
const drainLimit = drainBudget + 30*time.Second

// Stop asks the worker to stop, expects that it does so clean, and leaves it so.
func (m *Member) Stop() {
	p := m.release()
	if p == nil {
		return
	}
	m.fleet.bed.watch.scrape(m.fleet.ctx, p)
	m.await(p)
}

// await sends SIGTERM to a process and judges how it ends.
func (m *Member) await(p *proc.Process) {
	b := m.fleet.bed
	began := time.Now()
	_ = p.Signal(syscall.SIGTERM) // It may just have ended.
	select {
	case <-p.Ended():
	case <-time.After(drainLimit):
		_ = p.Signal(syscall.SIGQUIT) // Its log says where it stands.
		_ = until(m.fleet.ctx, 5*time.Second, func() bool { return m.hasEnded(p) })
		p.Kill()
		b.log.violation(oracle.CleanStop, "worker %s did not stop within %s of SIGTERM (%s)", m.Name, drainLimit, p.LogPath)
		return
	}
	switch code := p.Code(); {
	case code == 0:
	case code == -int(syscall.SIGTERM) && began.Sub(p.Began) < 2*time.Second: // Before it was the worker's to take the signal.
	case code == -int(syscall.SIGKILL) && m.isTrapped():
		b.log.count(countKills)
	case b.foreseen(p):
		b.log.line("worker %s ended with %d after SIGTERM, which it may: %s (%s)", m.Name, code, p.Reason(), p.LogPath)
	default:
		b.log.violation(oracle.CleanStop, "worker %s ended with %d, %s after SIGTERM: %s (%s)", m.Name, code, time.Since(began).Round(time.Millisecond), p.Reason(), p.LogPath)
	}
}

func (m *Member) hasEnded(p *proc.Process) bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

func (m *Member) isTrapped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trapped
}

func (m *Member) isExcused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.excused)
}

// tend waits for the end of a process, judges it, and starts the next one if it was not meant.
func (m *Member) tend(p *proc.Process) {
	<-p.Ended()
	b := m.fleet.bed
	m.faults(p)
	m.mu.Lock()
	own := m.proc == p && m.wanted
	trapped := m.trapped && p.Code() == -int(syscall.SIGKILL)
	m.mu.Unlock()
	if !own || m.fleet.ctx.Err() != nil {
		return
	}
	switch {
	case trapped:
		b.log.count(countKills)
	case b.foreseen(p):
		b.log.count(countExits)
		b.log.line("worker %s ended with %d, which it may: %s (%s)", m.Name, p.Code(), p.Reason(), p.LogPath)
		b.repair(m.fleet.ctx, p.Reason())
	default:
		b.log.violation(oracle.Sound, "worker %s ended by itself: %s (%s)\n%s", m.Name, p.End(), p.LogPath, p.Tail())
	}
	if pause(m.fleet.ctx, restartDelay) != nil {
		return
	}
	m.mu.Lock()
	again := m.proc == p && m.wanted
	m.mu.Unlock()
	if again {
		if err := m.Start(); err != nil {
			b.log.violation(oracle.Sound, "worker %s does not start again: %v", m.Name, err)
		}
	}
}

// up starts every worker that does not run, and continues those that are stopped.
func (f *Fleet) up() error {
	for _, m := range f.Members {
		m.mu.Lock()
		wanted := m.wanted
		m.mu.Unlock()
		if !wanted {
			if err := m.Start(); err != nil {
				return err
			}
		}
		m.Signal(syscall.SIGCONT)
	}
	return nil
}

// Names of counts.
const (
	countKills          = "kills"
	countExits          = "exits"
	countBrokerRestarts = "broker_restarts"
)
