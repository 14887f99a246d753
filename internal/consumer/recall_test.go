package consumer

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// rememberer is an echo whose state has turns under way that began with the records at some offsets of partition 1.
type rememberer struct {
	*echo

	turns map[int64]*schemas.TurnEvent
}

func (r *rememberer) Open(ctx context.Context, a *Assignment) (PartitionHandler, error) {
	p, err := r.echo.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &remembererPartition{echoPartition: p.(*echoPartition), turns: r.turns}, nil
}

func (r *rememberer) handles(s *setup) {
	r.topic = s.handler.topic
	s.deps.Handler = r
}

type remembererPartition struct {
	*echoPartition

	turns map[int64]*schemas.TurnEvent
}

func (p *remembererPartition) Begun(*Record) bool { return false }

func (p *remembererPartition) Recall(offset int64) (*schemas.TurnEvent, []byte) {
	if ev := p.turns[offset]; ev != nil && p.a.Partition == 1 {
		return ev, []byte("hash")
	}
	return nil, nil
}

// noTurn is a record that cannot be decoded.
func noTurn(session string) *kgo.Record {
	r := turn(session, "")
	r.Value = []byte("no JSON")
	return r
}

// The record of a turn under way cannot be read any more. It has its place in the lane of its session as if it could, and its offset is
// done when its turn is. A record like it, of which no turn has begun, is a dead letter meanwhile.
func TestWorker_GivesAnUnreadableRecordToItsTurnUnderWay(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		s := sessionOn(1, 1)
		release := make(chan struct{})
		r := &rememberer{echo: holdTurn("begun", release), turns: map[int64]*schemas.TurnEvent{1: {TurnID: "begun", SessionID: s}}}
		hold := r.on
		r.on = func(ctx context.Context, a *Assignment, rec *Record) error {
			if refused := rec.Refused != nil && rec.Refused.Code == schemas.CodeUndecodable && string(rec.Hash) == "hash"; refused != (rec.Event.TurnID == "begun") {
				f.t.Errorf("turn %s: refused because of %v, hash %q", rec.Event.TurnID, rec.Refused, rec.Hash)
			}
			return hold(ctx, a, rec)
		}
		p := f.start(r.handles).running(bedPartitions)
		f.produce(turn(s, "before"), noTurn(s), turn(s, "next"), noTurn(s))
		f.eventually("the other one is a dead letter", func() bool { return len(f.read(f.letters.Name)) == 1 })
		f.eventually("what came before is done", func() bool { return f.committed()[1].At == 1 })
		<-time.After(time.Second) // The next turn of the session would have begun by now.
		if want := []string{"before", "begun"}; !slices.Equal(r.runs(), want) || f.committed()[1].At != 1 {
			f.t.Errorf("%q ran, want %q; offset %d is committed", r.runs(), want, f.committed()[1].At)
		}
		close(release)
		f.handled()
		if diff := cmp.Diff([]string{"before 1", "begun 2", "next 3"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		if n := len(f.read(f.letters.Name)); n != 1 {
			f.t.Errorf("%d dead letters, want 1", n)
		}
		p.end()
	})
}
