package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/netcut"
)

// core is what holds on every broker.
var core = []struct {
	name string
	test func(b *bed)
}{
	{"every turn is handled once and in order", everyTurnOnce},
	{"lost answers and lost requests duplicate nothing", lostAnswers},
	{"partitions move between workers under load", movingPartitions},
	{"a killed worker is replaced", killedWorker},
	{"a restarted worker goes on from its disk", restartFromDisk},
	{"an empty disk is filled from the changelog", restoreToEmptyDisk},
	{"what cannot be accepted is a dead letter", deadLetters},
	{"an odd record harms nobody", oddRecords},
	{"a turn that names no session is known as such", lone},
	{"a slow turn holds up nobody else", slowTurn},
	{"a session is never run twice at a time", sessionsAreSerial},
	{"a cancel does not queue", cancelOvertakes},
	{"a full partition is paused and resumed", pausedAtBounds},
	{"a paused partition that is lost and regained goes on", pausedLostRegained},
	{"a drain ends what runs and marks its commit clean", drainMarksClean},
	{"a drain over its budget suspends the turn", drainOverBudget},
	{"a fault of one partition halts it alone", haltedAlone},
	{"unfinished turns come before records", resumedFirst},
	{"after a death the turns of the dead are suspect", suspectsAfterDeath},
	{"a turn whose output is refused ends without it, alone", refusesOne},
	{"a state record that is refused is split, or stops its turn", refusesState},
	{"a dead letter that is refused is cut", refusesLetters},
}

func (p *process) end() {
	p.t.Helper()
	p.stop()
	<-p.ended
	if p.err != nil {
		p.t.Fatalf("drain: %v", p.err)
	}
}

func everyTurnOnce(b *bed) {
	p := b.start().running(bedPartitions)
	b.load(200, 20)
	b.handled()
	b.exactlyOnce(20)
	p.end()
	p.stateIsTheChangelog()
}

// lostAnswers breaks connections at the requests of a cycle, before and after the broker has acted.
func lostAnswers(b *bed) {
	p := b.start(with(func(c *Config) { c.Txn.Timeout = 5 * time.Second })).running(bedPartitions)
	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	left, cuts := 25, 0
	b.wires.BreakAt(func(key kmsg.Key) netcut.Cut {
		if key != kmsg.EndTxn && key != kmsg.TxnOffsetCommit && key != kmsg.Produce {
			return netcut.CutNothing
		}
		mu.Lock()
		defer mu.Unlock()
		if left == 0 || rnd.IntN(6) > 0 {
			return netcut.CutNothing
		}
		left--
		cuts++
		return netcut.Cut(1 + rnd.IntN(2))
	})
	for range 40 {
		b.load(20, 10)
	}
	b.handled()
	b.wires.BreakAt(nil)
	b.exactlyOnce(10)
	p.end()
	p.stateIsTheChangelog()
	if cuts < 10 {
		b.t.Errorf("only %d connections were cut", cuts)
	}
}

func movingPartitions(b *bed) {
	work := func() *echo {
		return &echo{on: func(ctx context.Context, a *Assignment, _ *Record) error {
			if err := a.Permit(ctx); err != nil {
				return fmt.Errorf("%w: %w", ErrSuspended, err)
			}
			select {
			case <-time.After(3 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
			}
		}}
	}
	first := b.start(handling(work())).running(bedPartitions)
	b.load(200, 16)
	second := b.start(handling(work()))
	b.load(200, 16)
	first.running(2)
	second.running(2)
	b.load(200, 16)
	first.end()
	second.running(bedPartitions)
	b.load(100, 16)
	third := b.start(handling(work()))
	second.running(2)
	third.running(2)
	b.load(100, 16)
	b.handled()
	b.exactlyOnce(16)
	second.end()
	third.running(bedPartitions)
	third.end()
	third.stateIsTheChangelog()
}

func killedWorker(b *bed) {
	hold := handling(holdTurns(func(turn string) bool { return turn >= "turn-000080" }, nil))
	first := b.start(hold, with(func(c *Config) { c.SessionTimeout = 2 * time.Second; c.Txn.Timeout = 3 * time.Second })).running(bedPartitions)
	b.load(100, 10)
	b.eventually("some turns are handled", func() bool { return len(first.handler.runs()) > 50 })
	first.kill()
	b.load(100, 10)
	second := b.start().running(bedPartitions)
	clean := 0
	for _, a := range second.handler.assignments() {
		if a.Clean { // Where the last commit came before anything else was delivered.
			clean++
		}
	}
	if clean == bedPartitions {
		b.t.Error("all partitions were left clean by a worker that was killed with turns under way")
	}
	b.handled()
	b.exactlyOnce(10)
	second.end()
	second.stateIsTheChangelog()
}

func restartFromDisk(b *bed) {
	fs := vfs.NewMem()
	first := b.start(onDisk(fs)).running(bedPartitions)
	b.load(100, 10)
	b.handled()
	first.drain()
	second := b.start(onDisk(fs)).running(bedPartitions)
	for id, n := range second.restored() {
		if n != 0 {
			b.t.Errorf("partition %d read %d records though its disk had them", id, n)
		}
	}
	for _, a := range second.handler.assignments() {
		if !a.Clean {
			b.t.Errorf("partition %d was drained, and is not clean", a.Partition)
		}
	}
	b.load(100, 10)
	b.handled()
	b.exactlyOnce(10)
	second.end()
	second.stateIsTheChangelog()
}

// restored is how many changelog records each partition has read.
func (p *process) restored() map[int32]int64 {
	out := map[int32]int64{}
	for _, q := range p.worker.all() {
		out[q.id] = q.restore.records.Load()
	}
	return out
}

func restoreToEmptyDisk(b *bed) {
	first := b.start(with(func(c *Config) { c.Txn.Timeout = 5 * time.Second })).running(bedPartitions)
	aborts := 0
	b.wires.BreakAt(func(key kmsg.Key) netcut.Cut { // Aborted records lie in the changelog too, last of all.
		if key == kmsg.TxnOffsetCommit && aborts < 6 {
			aborts++
			return netcut.CutRequest
		}
		return netcut.CutNothing
	})
	for range 10 {
		b.load(30, 10)
	}
	b.handled()
	first.drain()
	second := b.start(with(func(c *Config) { c.RestoreFetchBytes = 1 << 10 })).running(bedPartitions)
	total := int64(0)
	for _, n := range second.restored() {
		total += n
	}
	if total < 300 {
		b.t.Errorf("only %d records were restored", total)
	}
	b.load(50, 10)
	b.handled()
	b.exactlyOnce(10)
	second.end()
	second.stateIsTheChangelog()
}
