package torture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/internal/oracle"
)

// maxOpen is how many turns may be sent and not ended: what is sent while workers are down has to be done in a bounded time.
const maxOpen = 200

// load sends the sequence.
type load struct {
	bed      *Bed
	sequence *sequence

	mu     sync.Mutex
	sent   []sentItem
	begun  int // turns
	failed error
}

// sentItem is an item that the brokers have.
type sentItem struct {
	item

	offset int64
}

func newLoad(b *Bed) *load {
	return &load{bed: b, sequence: newSequence(b.cfg.Seed, b.spareEnds())}
}

// spareEnds are the ends that any turn may come to under the attacks of the run.
func (b *Bed) spareEnds() []string {
	var out []string
	if slices.Contains(b.cfg.Attacks, "clock") {
		// A clock that jumps spends a turn's time, also while a call is under way that may have changed something.
		out = append(out, "failed:deadline_exceeded", "outcome_unknown:deadline_exceeded")
	}
	if slices.ContainsFunc(b.cfg.Attacks, func(name string) bool { return !graceful(name) }) {
		out = append(out, "failed:crash_loop") // Killed three times without progress.
	}
	return out
}

// run sends until ctx ends.
func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(l.bed.cfg.Rate))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if l.open() < maxOpen {
			l.send(context.WithoutCancel(ctx), l.sequence.take())
		}
	}
}

// open is how many turns are sent and have not ended.
func (l *load) open() int {
	l.mu.Lock()
	begun := l.begun
	l.mu.Unlock()
	return begun - l.bed.reader.ended()
}

// send gives one record to the producer, which keeps the order of each partition and never gives up.
func (l *load) send(ctx context.Context, it item) {
	if it.first != nil {
		l.mu.Lock()
		l.begun++
		l.mu.Unlock()
	}
	rec := &kgo.Record{Topic: l.bed.Topic("turns"), Partition: it.partition, Key: it.key, Value: it.value}
	l.bed.client.Produce(ctx, rec, func(r *kgo.Record, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.failed = cmp.Or(l.failed, fmt.Errorf("send a record to partition %d: %w", it.partition, err))
			return
		}
		l.sent = append(l.sent, sentItem{it, r.Offset})
	})
}

// flush waits until the brokers have everything.
func (l *load) flush(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := l.bed.client.Flush(ctx); err != nil {
		return fmt.Errorf("flush what was sent: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// again sends some of the turns once more, after all.
func (l *load) again(ctx context.Context, n int) {
	unsent := func(it item) bool { // Its cancel went ahead of it, and then the time was over.
		return slices.ContainsFunc(l.sequence.next, func(next item) bool { return next.first != nil && next.turn == it.turn })
	}
	for range min(n, len(l.sequence.known)) {
		it := l.sequence.known[l.sequence.rng.IntN(len(l.sequence.known))]
		if unsent(it) {
			continue
		}
		it.first = nil
		l.send(ctx, it)
	}
}

// inOrder is what was sent, in the order of the log of each partition.
func (l *load) inOrder() []sentItem {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.sent)
	slices.SortFunc(out, func(a, b sentItem) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	return out
}

// tell puts what was sent into the evidence.
func (l *load) tell(e *oracle.Evidence) {
	for _, it := range l.inOrder() {
		e.Inputs = append(e.Inputs, oracle.Input{Partition: it.partition, Offset: it.offset, Turn: it.turn})
		if it.first != nil {
			e.Sent = append(e.Sent, *it.first)
		}
		if it.bad != nil {
			bad := *it.bad
			bad.Partition, bad.Offset = it.partition, it.offset
			e.Bad = append(e.Bad, bad)
		}
	}
}
