package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestWorker_TakesNothingOverFromAnEarlierMember: a worker was stopped while it let a partition go, for longer than its session.
// Another worker had the rest, ended, and the first was given it again as a new member that claimed it. It went on from where it
// had stood, and did again what the other had done.
func TestWorker_TakesNothingOverFromAnEarlierMember(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.load(40, 8)
		f.handled()
		before := p.epochs()
		forgotten := f.forgetMember(0)
		p.worker.forceRebalance()
		p.givenAnew(before)
		if !forgotten.Load() {
			f.t.Error("the group has forgotten nobody")
		}
		p.running(bedPartitions)
		f.load(40, 8)
		f.handled()
		p.drain()
		f.exactlyOnce(8)
	})
}

// TestWorker_TurnsUnderWayHaltNothingWhenTheGroupForgetsTheirMember: between the answer that the group does not know the member and
// the next membership a partition that runs belongs to nobody. A turn that asks whether it may go on meanwhile is suspended; that is no
// fault of its partition, which would stay halted although it is given to the worker again.
func TestWorker_TurnsUnderWayHaltNothingWhenTheGroupForgetsTheirMember(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		var over atomic.Bool
		p := f.start(handling(&echo{on: func(ctx context.Context, a *Assignment, _ *Record) error {
			for !over.Load() {
				if err := a.Permit(ctx); err != nil {
					return fmt.Errorf("%w: %w", ErrSuspended, err)
				}
				if err := sleep(ctx, 10*time.Millisecond); err != nil {
					return fmt.Errorf("%w: %w", ErrSuspended, err)
				}
			}
			return nil
		}})).running(bedPartitions)
		f.load(40, 8)
		f.eventually("turns run", func() bool { return len(p.handler.runs()) > 0 })
		before := p.epochs()
		f.forgetMember(2 * time.Second) // The others take their time.
		p.worker.forceRebalance()
		p.givenAnew(before)
		p.running(bedPartitions)
		over.Store(true)
		f.handled()
		p.drain()
		f.exactlyOnce(8)
	})
}

// forgetMember answers the next join of a member as if the group did not know it, and says when it has. The joins that follow take a
// while.
func (f *fake) forgetMember(while time.Duration) (forgotten *atomic.Bool) {
	forgotten = new(atomic.Bool)
	f.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		join := req.(*kmsg.JoinGroupRequest)
		switch {
		case forgotten.Load() && while > 0:
			f.cluster.SleepControl(func() { <-time.After(while) })
			return nil, nil, false //nolint:nilnil // The broker answers.
		case forgotten.Load() || join.MemberID == "":
			return nil, nil, false //nolint:nilnil // As above.
		}
		forgotten.Store(true)
		resp := join.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.UnknownMemberID.Code
		return resp, nil, true
	})
	return forgotten
}

// givenAnew waits until the worker has every partition under a later epoch.
func (p *process) givenAnew(before map[int32]uint64) {
	p.t.Helper()
	p.eventually("every partition is given anew", func() bool {
		now := p.epochs()
		for id, epoch := range before {
			if now[id] <= epoch {
				return false
			}
		}
		return len(now) == bedPartitions
	})
}

// epochs are those of the partitions that the worker has.
func (p *process) epochs() map[int32]uint64 {
	out := make(map[int32]uint64)
	for _, s := range p.worker.Status().Partitions {
		out[s.Partition] = s.Epoch
	}
	return out
}
