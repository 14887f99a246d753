package torture

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/lathe-run/lathe/test/internal/oracle"
	"github.com/lathe-run/lathe/test/internal/proc"
)

// endings are what a worker may say when it ends by itself, by the attack that may bring it to that.
func endings() map[string][]string {
	return map[string][]string{
		"disk_full": {"no space left on device"},
		"corrupt":   {"are damaged"},
		"twins":     {"lock the data directory", "has our group instance id", "has our transactional ids", "two processes share them"},
	}
}

// cutOff is what a worker may say that is asked to stop while brokers are away.
func cutOff() []string {
	return []string{"stopped before all partitions were drained and committed", "the outcome of the cycle is not known"}
}

// foreseen reports whether the attacks of the run may bring a worker to end as it says it did. While brokers are away a worker may
// also end before it has begun.
func (b *Bed) foreseen(p *proc.Process) bool {
	why := p.Reason()
	says := func(text string) bool { return strings.Contains(why, text) }
	for _, name := range b.cfg.Attacks {
		if slices.ContainsFunc(endings()[name], says) {
			return true
		}
	}
	unborn := p.Logged("worker starts") == nil && strings.HasPrefix(why, "worker: ")
	return b.troubled() && (unborn || slices.ContainsFunc(cutOff(), says))
}

// faults tells what no worker may print. A disk that fails under Pebble may end in a panic of Pebble's own, in place of a corrupted
// store.
func (m *Member) faults(p *proc.Process) {
	for _, bad := range p.Faults() {
		if m.isExcused() && bad != proc.Race && strings.Contains(p.Tail(), "cockroachdb/pebble") {
			continue
		}
		m.fleet.bed.log.violation(oracle.Sound, "worker %s printed %q (%s)", m.Name, bad, p.LogPath)
	}
}

// wiped tells of state that was given up although nobody had touched it.
func (b *Bed) wiped(e *oracle.Evidence) {
	touched := false
	for _, m := range b.Fleet.Members {
		touched = touched || m.spoilt()
		aside, err := filepath.Glob(filepath.Join(m.Data(), "damaged-*"))
		if err == nil && len(aside) > 0 && !m.spoilt() {
			b.log.violation(oracle.State, "worker %s has set files aside that no attack has damaged: %v", m.Name, aside)
		}
	}
	held := make(map[int32]bool)
	for _, l := range e.Local {
		held[l.Partition] = true
	}
	if !touched && len(held) < turnPartitions {
		b.log.violation(oracle.State, "the workers' disks hold %d of %d partitions", len(held), turnPartitions)
	}
}
