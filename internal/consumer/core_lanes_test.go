package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer/txn"
)

// slowTurn keeps one turn running while the others of its partition go on, moves the partition, and sees that nothing is run
// twice for it.
func slowTurn(b *bed) {
	release := make(chan struct{})
	slow := sessionOn(1, 1)
	gate := func() *echo { return holdTurn("slow", release) }
	budget := with(func(c *Config) { c.DrainBudget = 50 * time.Millisecond })
	first := b.start(handling(gate()), budget).running(bedPartitions)
	b.produce(turn(slow, "slow"), turn(slow, "after"))
	for i := range 100 {
		b.produce(turn(sessionOn(1, 100+i), fmt.Sprintf("quick-%d", i)))
	}
	b.eventually("the quick ones are done", func() bool { return len(b.read(b.output.Name)) == 100 })
	if at := b.committed()[1].At; at != 0 {
		b.t.Errorf("offset %d is committed though the slow turn at 0 is not done", at)
	}
	first.drain()
	second := b.start(handling(gate()), budget).running(bedPartitions)
	b.eventually("the slow one runs again", func() bool { return contains(second.handler.runs(), "slow") })
	close(release)
	b.handled()
	if n := len(b.read(b.output.Name)); n != 102 {
		b.t.Errorf("%d outputs, want 102", n)
	}
	if contains(second.handler.runs(), "quick") {
		b.t.Error("a turn that was done beyond the committed offset ran again")
	}
	if diff := cmp.Diff([]string{"slow 1", "after 2"}, b.outputs()[slow]); diff != "" {
		b.t.Errorf("session (-want +got):\n%s", diff)
	}
	second.end()
}

func sessionsAreSerial(b *bed) {
	var running sync.Map
	var together, most atomic.Int32
	p := b.start(handling(&echo{on: func(_ context.Context, _ *Assignment, rec *Record) error {
		if _, busy := running.LoadOrStore(rec.Event.SessionID, true); busy {
			return errors.New("two turns of a session run at once")
		}
		now := together.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		<-time.After(5 * time.Millisecond)
		together.Add(-1)
		running.Delete(rec.Event.SessionID)
		return nil
	}})).running(bedPartitions)
	b.load(160, 16)
	b.handled()
	b.exactlyOnce(16)
	if most.Load() < 8 {
		b.t.Errorf("at most %d sessions ran together, of 16", most.Load())
	}
	p.end()
}

func cancelOvertakes(b *bed) {
	release := make(chan struct{})
	p := b.start(handling(&echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
		}
	}})).running(bedPartitions)
	s := sessionOn(3, 1)
	b.produce(turn(s, "one"), turn(s, "two"), cancelOf(s, "two"))
	b.eventually("the cancel is there", func() bool {
		p.handler.mu.Lock()
		defer p.handler.mu.Unlock()
		return contains(p.handler.cancelled, "two") && len(p.handler.ran) > 0
	})
	if got := p.handler.runs(); len(got) != 1 {
		b.t.Errorf("turns %q ran, want the first only", got)
	}
	close(release)
	b.handled()
	p.end()
}

func pausedAtBounds(b *bed) {
	release := make(chan struct{})
	p := b.start(handling(&echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
		}
	}}), with(func(c *Config) { c.Window, c.MaxInFlight, c.MaxBufferedBytes = 8, 16, 1 })).running(bedPartitions)
	for range 20 {
		b.bulk(50)
	}
	paused := func(want int) func() bool {
		return func() bool {
			n := 0
			for _, s := range p.worker.Status().Partitions {
				if s.Paused {
					n++
				}
			}
			return n == want
		}
	}
	b.eventually("all partitions are paused", paused(bedPartitions))
	for _, s := range p.worker.Status().Partitions {
		if s.InFlight > 8 || s.Backlog == 0 {
			b.t.Errorf("partition %d has %d turns in flight and %d waiting", s.Partition, s.InFlight, s.Backlog)
		}
	}
	if n := len(p.handler.runs()); n > 16 {
		b.t.Errorf("%d turns run, the limit is 16", n)
	}
	close(release)
	b.handled()
	b.eventually("no partition is paused", paused(0))
	b.exactlyOnce(64)
	p.end()
}

// bulk produces turns that are some KiB each.
func (b *bed) bulk(n int) {
	records := make([]*kgo.Record, n)
	for i := range records {
		r := turn(fmt.Sprintf("session-%d", b.sent%64), fmt.Sprintf("turn-%06d", b.sent))
		r.Headers = []kgo.RecordHeader{{Key: "ballast", Value: make([]byte, 4<<10)}}
		records[i] = r
		b.sent++
	}
	b.produce(records...)
}

// pausedLostRegained has its story in franz-go's issue 1272: a partition that was paused as it was revoked stayed paused when it
// came back, and nobody noticed but its consumers.
func pausedLostRegained(b *bed) {
	var open atomic.Bool
	gate := func() *echo {
		return &echo{on: func(ctx context.Context, a *Assignment, _ *Record) error {
			for !open.Load() {
				if err := a.Permit(ctx); err != nil {
					return fmt.Errorf("%w: %w", ErrSuspended, err)
				}
				if sleep(ctx, 5*time.Millisecond) != nil {
					return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
				}
			}
			return nil
		}}
	}
	small := with(func(c *Config) { c.Window, c.MaxBufferedBytes = 4, 1 })
	first := b.start(handling(gate()), small).running(bedPartitions)
	for range 20 {
		b.bulk(50)
	}
	b.eventually("all partitions are paused", func() bool {
		for _, s := range first.worker.Status().Partitions {
			if !s.Paused {
				return false
			}
		}
		return true
	})
	second := b.start(handling(gate()), small).running(2)
	first.running(2)
	second.drain()
	first.running(bedPartitions)
	open.Store(true)
	b.handled()
	b.exactlyOnce(64)
	first.end()
}

func drainMarksClean(b *bed) {
	asked := make(chan error, 1)
	started := make(chan struct{})
	p := b.start(handling(&echo{on: func(ctx context.Context, a *Assignment, rec *Record) error {
		if rec.Event.TurnID != "last" {
			return nil
		}
		close(started)
		err := a.Permit(ctx)
		for err == nil {
			err = errors.Join(a.Permit(ctx), sleep(ctx, time.Millisecond))
		}
		asked <- err
		return nil
	}})).running(bedPartitions)
	s := sessionOn(0, 1)
	b.produce(turn(s, "last"), turn(s, "never"))
	<-started
	p.end()
	if err := <-asked; !errors.Is(err, ErrDraining) {
		b.t.Errorf("Permit while draining: %v", err)
	}
	if got := p.handler.runs(); contains(got, "never") {
		b.t.Error("a turn began while the worker drained")
	}
	if diff := cmp.Diff([]string{"last 1"}, b.outputs()[s]); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
	committed := b.committed()
	for id := range int32(bedPartitions) {
		m, ok := txn.ParseMetadata(committed[id].Metadata)
		if !ok || !m.Clean {
			b.t.Errorf("partition %d has metadata %q, want a clean one", id, committed[id].Metadata)
		}
	}
	if next := committed[0].At; next != 1 {
		b.t.Errorf("offset %d is committed, want 1", next)
	}
	second := b.start().running(bedPartitions)
	b.eventually("the turn runs that did not before", func() bool { return len(second.handler.runs()) > 0 })
	at := b.stable()[0]
	if m, ok := txn.ParseMetadata(at.Metadata); !ok || m.Clean { // It is not any more, before a record is handled.
		b.t.Errorf("partition 0 has metadata %q while turns run, want one that is not clean", at.Metadata)
	}
	b.handled()
	second.end()
}

func drainOverBudget(b *bed) {
	cause := make(chan error, 1)
	p := b.start(handling(&echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
	}}), with(func(c *Config) { c.DrainBudget = 100 * time.Millisecond })).running(bedPartitions)
	s := sessionOn(0, 1)
	b.produce(turn(s, "endless"))
	b.eventually("the turn runs", func() bool { return len(p.handler.runs()) == 1 })
	p.end()
	if err := <-cause; !errors.Is(err, ErrDrainBudget) {
		b.t.Errorf("the turn was cancelled by %v", err)
	}
	second := b.start().running(bedPartitions)
	b.handled()
	if diff := cmp.Diff([]string{"endless 1"}, b.outputs()[s]); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
	second.end()
}

func haltedAlone(b *bed) {
	p := b.start(handling(&echo{on: func(_ context.Context, a *Assignment, _ *Record) error {
		if a.Partition == 1 {
			return errors.New("the disk is gone")
		}
		return nil
	}})).running(bedPartitions)
	b.produce(turn(sessionOn(1, 1), "bad"))
	for id := range int32(bedPartitions) {
		b.produce(turn(sessionOn(id, 2), fmt.Sprintf("good-%d", id)))
	}
	b.eventually("the others are handled", func() bool { return len(b.read(b.output.Name)) == 3 })
	if diff := cmp.Diff([]string{"running", "halted", "running", "running"}, sorted(p.status())); diff != "" {
		b.t.Errorf("states (-want +got):\n%s", diff)
	}
	if s := p.worker.Status(); s.Ready || !strings.Contains(s.ReadyReason, "the disk is gone") {
		b.t.Errorf("ready %t: %s", s.Ready, s.ReadyReason)
	}
	p.end()
}

func resumedFirst(b *bed) {
	s := sessionOn(2, 1)
	b.produce(turn(s, "from-log"))
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	e := &echo{on: func(_ context.Context, _ *Assignment, rec *Record) error {
		note(rec.Event.TurnID)
		return nil
	}}
	e.resume = func(a *Assignment) []Task {
		if a.Partition != 2 {
			return nil
		}
		return []Task{{LaneKey: s, Run: func(context.Context) error {
			<-time.After(20 * time.Millisecond)
			note("from-state")
			return nil
		}}}
	}
	p := b.start(handling(e))
	b.handled()
	p.end()
	if diff := cmp.Diff([]string{"from-state", "from-log"}, order); diff != "" {
		b.t.Errorf("order (-want +got):\n%s", diff)
	}
}
