package consumer

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/statestore"
)

func (p *process) wantLive() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("the worker ended: %v", p.err)
	default:
	}
	if s := p.worker.Status(); !s.Live {
		p.t.Errorf("not live: %s", s.LiveReason)
	}
}

// TestWorker_IsNotStuckWhenTheGroupThrewItOut lets the group refuse the only effect of an idle worker, since it does not know the
// member: the effect is gone with the partitions, and nothing waits any more. The clock of the cycle that failed went on all the same.
func TestWorker_IsNotStuckWhenTheGroupThrewItOut(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start(calm, with(func(c *Config) { c.Stall = time.Minute })).running(bedPartitions)
		f.load(40, 8)
		f.handled()
		refused := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.UnknownMemberID, Count: 1})
		must(f.t, p.worker.partition(1).store.Add(&statestore.Effect{Offset: statestore.NoOffset}))
		f.eventually("the effect is refused", func() bool { return refused.Hits() == 1 })
		for range 4 {
			<-time.After(30 * time.Second)
			p.wantLive()
		}
		p.running(bedPartitions)
		f.load(40, 8)
		f.handled()
		f.exactlyOnce(8)
		p.end()
		p.stateIsTheChangelog()
	})
}

// TestWorker_IsNotStuckAfterAnOutage keeps effects waiting while no broker answers for longer than what counts as stuck. The first
// heartbeat that was answered used to end the worker, unless a cycle had succeeded before it.
func TestWorker_IsNotStuckAfterAnOutage(t *testing.T) {
	t.Parallel()
	for protocol, use := range protocols() {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				var o outage
				defer o.silent.Store(false)
				release := make(chan struct{})
				held := holdTurns(func(turn string) bool { return turn >= "turn-000040" }, release)
				p := f.start(calm, use, o.on(f.bed), handling(held), with(func(c *Config) {
					c.SessionTimeout = 45 * time.Second
				})).running(bedPartitions)
				f.load(40, 8)
				f.handled()
				f.load(8, 8)
				f.eventually("turns run", func() bool { return len(p.handler.runs()) == 48 })
				o.silent.Store(true)
				close(release)
				f.eventually("a cycle is under way", func() bool { return p.worker.committer.since.Load() != 0 })
				<-time.After(200 * time.Second)
				p.wantLive()
				o.silentToProducers.Store(true) // Its group answers first.
				o.silent.Store(false)
				<-time.After(40 * time.Second)
				p.wantLive()
				o.silentToProducers.Store(false)
				f.handled()
				f.load(40, 8)
				f.handled()
				f.exactlyOnce(8)
				p.wantLive()
				p.running(bedPartitions).end()
				p.stateIsTheChangelog()
			})
		})
	}
}

// TestWorker_FetchesAgainWhenTheClientHasStoppedTo replaces the client's session over and over, just after its fetches were asked to
// begin. Under load some of them end with the old session and nobody begins them anew: partitions stood still, with nothing to show
// for it. Which round meets that moment is up to the machine, so a run may meet none.
func TestWorker_FetchesAgainWhenTheClientHasStoppedTo(t *testing.T) {
	t.Parallel()
	bubbleOf(t, 3, func(f *fake) {
		p := f.start(calm).running(bedPartitions)
		next := make(map[int32]int64)
		for range 200 {
			g := p.worker.group()
			for id := range int32(bedPartitions) {
				g.SetOffsets(map[string]map[int32]kgo.EpochOffset{f.turns.Name: {id: {Epoch: -1, Offset: next[id]}}})
				g.ResumeFetchPartitions(nil)
			}
			f.load(8, 8)
			f.handled()
			for id, o := range f.committed() {
				next[id] = o.At
			}
		}
		f.exactlyOnce(8)
		p.end()
	})
}
