package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/lathe-run/lathe/test/internal/oracle"
)

// Summary is the last line.
type Summary struct {
	// Seed is the one of the run; of several the first that broke a promise, or just the first.
	Seed       uint64 `json:"seed"`
	Violations int    `json:"violations"`
	// Turns that were sent and ended.
	Turns int `json:"turns"`
	// Kills are SIGKILLs of workers, traps in the commit cycle included.
	Kills int `json:"kills"`
	// Rebalances are partitions that were assigned, revoked or lost, by the workers' own count.
	Rebalances   int64 `json:"rebalances"`
	Transactions int64 `json:"transactions"`
	// Unknown are transactions whose outcome had to be found out.
	Unknown int64 `json:"unknown"`
	// Indeterminate are calls that may run at most once and were in doubt.
	Indeterminate  int     `json:"indeterminate"`
	BrokerRestarts int     `json:"broker_restarts"`
	Seconds        float64 `json:"seconds"`
	// Attacks counts them by name, Exits workers that ended by themselves when they might.
	Attacks map[string]int `json:"attacks"`
	Exits   int            `json:"exits"`
	Seeds   []uint64       `json:"seeds,omitempty"`
}

func (s *Summary) json() string {
	out, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprintf(`{"error":%q}`, err)
	}
	return string(out)
}

// add counts another run in.
func (s *Summary) add(o *Summary) {
	if len(s.Seeds) == 0 || s.Violations == 0 && o.Violations > 0 {
		s.Seed = o.Seed
	}
	s.Seeds = append(s.Seeds, o.Seed)
	s.Violations += o.Violations
	s.Turns += o.Turns
	s.Kills += o.Kills
	s.Rebalances += o.Rebalances
	s.Transactions += o.Transactions
	s.Unknown += o.Unknown
	s.Indeterminate += o.Indeterminate
	s.BrokerRestarts += o.BrokerRestarts
	s.Seconds += o.Seconds
	s.Exits += o.Exits
	if s.Attacks == nil {
		s.Attacks = make(map[string]int)
	}
	for name, n := range o.Attacks {
		s.Attacks[name] += n
	}
}

// journal is the progress of a run, and what was found wrong while it ran. It is safe for concurrent use.
type journal struct {
	out   io.Writer
	began time.Time

	mu         sync.Mutex
	violations []oracle.Violation
	counts     map[string]int
}

func newJournal(out io.Writer) *journal {
	return &journal{out: out, began: time.Now(), counts: make(map[string]int)}
}

// line prints one line with the time since the start.
func (j *journal) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	say(j.out, "%7.1fs  %s\n", time.Since(j.began).Seconds(), text)
}

// violation notes a broken promise, and says so at once.
func (j *journal) violation(p oracle.Promise, format string, args ...any) {
	v := oracle.Violation{Promise: p, Text: fmt.Sprintf(format, args...)}
	first, _, _ := strings.Cut(v.String(), "\n")
	j.line("VIOLATION %s", first)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.violations = append(j.violations, v)
}

// count counts something by name.
func (j *journal) count(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[name]++
}

func (j *journal) counted(name string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts[name]
}

func (j *journal) found() []oracle.Violation {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]oracle.Violation(nil), j.violations...)
}

// maxShown is how many violations of one promise are printed; what comes after follows from the same cause more often than not.
const maxShown = 30

// verdict prints all violations and how to see them again.
func (b *Bed) verdict(found []oracle.Violation) {
	if len(found) == 0 {
		b.log.line("all promises were kept")
		return
	}
	shown := make(map[oracle.Promise]int)
	for _, v := range found {
		if shown[v.Promise]++; shown[v.Promise] <= maxShown {
			say(b.log.out, "violation of %s\n", v)
		}
	}
	for p, n := range shown {
		say(b.log.out, "%d violations of %s\n", n, p)
	}
	say(b.log.out, "logs, ledger, local state: %s\n", b.dir)
	say(b.log.out, "again: make torture TORTURE_SEED=%d TORTURE_SECONDS=%g TORTURE_ATTACKS=%s TORTURE_PROTOCOL=%s\n",
		b.cfg.Seed, b.cfg.Attack.Seconds(), strings.Join(b.cfg.Attacks, ","), b.cfg.Protocol)
}
