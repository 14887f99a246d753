package torture

import (
	"bufio"
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/lathe-run/lathe/test/internal/oracle"
	"github.com/lathe-run/lathe/test/internal/proc"
)

const (
	watchInterval = 500 * time.Millisecond
	watchTimeout  = 3 * time.Second
)

// watcher looks at what passes: the committed offsets, for the oracle, and the workers' counters, which die with them.
type watcher struct {
	bed *Bed

	mu      sync.Mutex
	samples []oracle.Sample
	// counters are the last that were seen of each process.
	counters map[int]counters
}

// counters are what one process has counted.
type counters struct{ transactions, unknown, rebalances int64 }

func newWatcher(b *Bed) *watcher { return &watcher{bed: b, counters: make(map[int]counters)} }

func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		w.sample(ctx)
		for _, p := range w.bed.Fleet.live() {
			w.scrape(ctx, p)
		}
	}
}

// sample looks at the committed offsets first, and then at the ends of the outputs.
func (w *watcher) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	committed, err := w.bed.adm.FetchOffsets(ctx, w.bed.app)
	if err != nil || !committed.Ok() {
		return
	}
	ends, err := w.bed.adm.ListEndOffsets(ctx, w.bed.Topic("turn-events"))
	if err != nil || ends.Error() != nil {
		return
	}
	s := oracle.Sample{Committed: make(map[int32]int64), TurnEvents: make(map[int32]int64)}
	committed.Each(func(o kadm.OffsetResponse) { s.Committed[o.Partition] = o.At })
	ends.Each(func(o kadm.ListedOffset) { s.TurnEvents[o.Partition] = o.Offset })
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.samples); n > 0 && back(w.samples[n-1].Committed, s.Committed) {
		// A coordinator that was stopped while it was replaced tells what it knew.
		if !w.bed.troubled() {
			w.bed.log.violation(oracle.OffsetPrefix, "the committed offsets went from %v back to %v", w.samples[n-1].Committed, s.Committed)
		}
		return
	}
	w.samples = append(w.samples, s)
}

// back reports whether an offset is smaller than it was, or gone.
func back(was, is map[int32]int64) bool {
	for partition, at := range was {
		if is[partition] < at {
			return true
		}
	}
	return false
}

// scrape reads the counters of a process.
func (w *watcher) scrape(ctx context.Context, p *proc.Process) {
	ctx, cancel := context.WithTimeout(ctx, watchInterval)
	defer cancel()
	status, body := p.Probe(ctx, "/metrics")
	if status != 200 {
		return
	}
	c := counters{
		transactions: sum(body, "lathe_commit_duration_seconds_count", `outcome="committed"`),
		unknown:      sum(body, "lathe_commit_unknown_outcomes", ""),
		rebalances:   sum(body, "lathe_kafka_rebalances", ""),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counters[p.PID()] = c
}

// sum adds up a metric over all its labels, or over those that contain a text.
func sum(exposition, name, label string) int64 {
	var total float64
	for lines := bufio.NewScanner(strings.NewReader(exposition)); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, name) || !strings.Contains(line, label) {
			continue
		}
		if v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64); err == nil {
			total += v
		}
	}
	return int64(total)
}

func (w *watcher) total() counters {
	w.mu.Lock()
	defer w.mu.Unlock()
	var t counters
	for _, c := range w.counters {
		t.transactions += c.transactions
		t.unknown += c.unknown
		t.rebalances += c.rebalances
	}
	return t
}

func (w *watcher) tell(e *oracle.Evidence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Samples = w.samples
}
