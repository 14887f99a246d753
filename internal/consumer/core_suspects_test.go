package consumer

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// suspectsAfterDeath looks at which records are said to be suspect: after a worker that was killed those that it may have run,
// after one that drained none, and none in a process that lost its partitions and has them again.
func suspectsAfterDeath(b *bed) {
	const window = 2
	small := with(func(c *Config) { c.Window = window })
	session := sessionOn(0, 1)
	more := func(from, n int) {
		var records []*kgo.Record
		for i := range n {
			records = append(records, turn(session, fmt.Sprintf("turn-%02d", from+i)))
		}
		b.produce(records...)
	}
	stuck := make(chan struct{})
	first := b.start(small, handling(&echo{on: func(ctx context.Context, _ *Assignment, rec *Record) error {
		if rec.Event.TurnID < "turn-02" {
			return nil
		}
		close(stuck)
		<-ctx.Done()
		return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
	}})).running(bedPartitions)
	more(0, 10)
	<-stuck
	b.eventually("two turns are committed", func() bool { return b.committed()[0].At == 2 })
	first.kill()

	second, suspects := b.startSuspicious(small)
	b.handled()
	suspects.want(b, true, "turn-02", "turn-03", "turn-04", "turn-05")
	more(10, 5)
	second.worker.askRejoin()
	b.handled()
	suspects.want(b, true, "turn-02", "turn-03", "turn-04", "turn-05")
	second.running(bedPartitions)
	for _, a := range second.handler.assignments()[bedPartitions:] {
		if a.Partition == 0 && (a.Died || a.Clean) { // Of the others it has committed nothing, so they are as the dead one left them.
			b.t.Errorf("a partition that a process has again: died %t, clean %t", a.Died, a.Clean)
		}
	}
	second.drain()

	third, suspects := b.startSuspicious(small)
	third.running(bedPartitions)
	more(15, 5)
	b.handled()
	suspects.want(b, false)
	third.end()
	third.stateIsTheChangelog()
}

// suspicion is which turns were said to be suspect, and whether the last owner of their partition was said to have died.
type suspicion struct {
	mu    sync.Mutex
	turns []string
	died  bool
}

func (b *bed) startSuspicious(change func(*setup)) (*process, *suspicion) {
	b.t.Helper()
	s := &suspicion{}
	return b.start(change, handling(&echo{
		open: func(a *Assignment) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.died = s.died || a.Died
			return nil
		},
		on: func(_ context.Context, _ *Assignment, rec *Record) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if rec.Suspect {
				s.turns = append(s.turns, rec.Event.TurnID)
			}
			return nil
		},
	})), s
}

func (s *suspicion) want(b *bed, died bool, turns ...string) {
	b.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if fmt.Sprint(s.turns) != fmt.Sprint(turns) || s.died != died {
		b.t.Errorf("suspects are %v, died %t, want %v and %t", s.turns, s.died, turns, died)
	}
}
