package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/schemas"
)

// What stands here happened to users of other programs; docs/reliability.md names them.

// TestWorker_WaitsForAStableOffset: an offset that cannot be fetched must not become the beginning of the log. It is waited for, and
// a person hears of it when it takes longer than a transaction may.
func TestWorker_WaitsForAStableOffset(t *testing.T) {
	t.Parallel()
	for _, cause := range []*kerr.Error{kerr.UnstableOffsetCommit, kerr.CoordinatorLoadInProgress, kerr.StaleMemberEpoch, kerr.UnknownServerError} {
		t.Run(cause.Message, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				first := f.start().running(bedPartitions)
				f.load(40, 8)
				f.handled()
				first.drain()
				unstable := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: f.name, Err: cause, Count: -1})
				said := newLogbook()
				second := f.start(said.into)
				<-time.After(time.Minute)
				if n := len(second.handler.assignments()); n > 0 {
					f.t.Errorf("%d partitions were opened without their offset", n)
				}
				if second.worker.Status().Ready {
					f.t.Error("it is ready")
				}
				if n := unstable.Hits(); n == 0 || n > 400 {
					f.t.Errorf("the offsets were asked for %d times in a minute", n)
				}
				if cause == kerr.UnstableOffsetCommit {
					warnings := said.with("committed offset is not stable for longer than a transaction may take; see whether one hangs")
					if len(warnings) != bedPartitions {
						f.t.Errorf("%d warnings, want one for each partition", len(warnings))
					}
				}
				unstable.Remove()
				second.running(bedPartitions)
				f.load(40, 8)
				f.handled()
				f.exactlyOnce(8)
				if n := len(second.handler.runs()); n != 40 {
					f.t.Errorf("%d turns ran, want the 40 new ones", n)
				}
				second.end()
			})
		})
	}
}

// TestWorker_IgnoresOffsetMetadataThatIsNotItsOwn: metadata that it cannot read costs nothing but the knowledge how the last owner
// left: the record at the offset is neither skipped nor run twice.
func TestWorker_IgnoresOffsetMetadataThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		first := f.start().running(bedPartitions)
		f.load(40, 8)
		f.handled()
		first.drain()
		for i, metadata := range []string{"", "|||", "1|x", strings.Repeat("\xff", 100), "2|bed-pod-1-0|12|34|56|clean"} {
			at := kadm.Offsets{f.turns.Name: {}}
			for id, o := range f.committed() {
				o.Metadata = metadata
				at[f.turns.Name][id] = o
			}
			must(f.t, f.admin.CommitAllOffsets(f.t.Context(), f.name, at))
			f.load(40, 8)
			p := f.start().running(bedPartitions)
			f.handled()
			f.exactlyOnce(8)
			if n := len(p.handler.runs()); n != 40 {
				f.t.Errorf("metadata %d: %d turns ran, want the 40 new ones", i, n)
			}
			p.drain()
		}
	})
}

// TestWorker_HaltsOnlyWhereTheLogWasCutBelowWhatItRead: a client may report data loss where there is none. Local state is not thrown
// away for it, and a partition halts only when records that were handled are gone from the log.
func TestWorker_HaltsOnlyWhereTheLogWasCutBelowWhatItRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.load(80, 8)
		f.handled()
		one, two := p.worker.partition(1), p.worker.partition(2)
		p.worker.fetchFault(f.t.Context(), one, f.turns.Name, &kgo.ErrDataLoss{Topic: f.turns.Name, Partition: 1, ConsumedTo: one.read() + 1, ResetTo: one.read()})
		p.worker.fetchFault(f.t.Context(), two, f.turns.Name, &kgo.ErrDataLoss{Topic: f.turns.Name, Partition: 2, ConsumedTo: two.read(), ResetTo: two.read() - 1})
		f.eventually("partition 2 alone is halted", func() bool {
			return cmp.Equal(sorted(p.status()), []string{"running", "running", "halted", "running"})
		})
		f.produce(turn(sessionOn(1, 5), "more"))
		f.eventually("partition 1 goes on", func() bool { return f.committed()[1].At == one.read() })
		p.end()
		p.stateIsTheChangelog()
	})
}

// TestWorker_HaltsWhenItsTopicIsMadeAgain deletes the input and makes it again under a worker. Offsets of the old topic mean nothing
// in the new one: the partitions halt, and the next start begins at the beginning.
func TestWorker_HaltsWhenItsTopicIsMadeAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.load(80, 8)
		f.handled()
		_, err := f.admin.DeleteTopic(f.t.Context(), f.turns.Name)
		must(f.t, err)
		f.turns = f.topic(f.turns.Name, nil)
		f.eventually("all partitions are halted", func() bool {
			return cmp.Equal(sorted(p.status()), []string{"halted", "halted", "halted", "halted"})
		})
		p.kill() // What is halted cannot be drained: the group knows nothing of the old topic any more.
		next := f.start().running(bedPartitions)
		f.producer = f.client(kgo.RecordPartitioner(kgo.ManualPartitioner())) // The old one knows the old topic.
		f.load(80, 8)
		f.handled()
		f.exactlyOnce(8)
		if n := len(next.handler.runs()); n != 80 {
			f.t.Errorf("%d turns ran, want the 80 of the new topic", n)
		}
		next.end()
	})
}

// TestWorker_StopsWaitingForTheRegistryWhenItsPartitionMoves: a wait belongs to an assignment. Here the next owner can decode what the
// last one waited to.
func TestWorker_StopsWaitingForTheRegistryWhenItsPartitionMoves(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		down := &flakyDecoder{Decoder: schemas.NewDecoder(schemas.DecoderOptions{}), until: time.Now().Add(time.Hour)}
		first := f.start(func(s *setup) { s.deps.Decoder = down }).running(bedPartitions)
		for id := range int32(bedPartitions) {
			f.produce(turn(sessionOn(id, 1), fmt.Sprint("needs-registry-", id)))
		}
		f.eventually("all partitions wait", func() bool {
			waits := first.statusOf(func(s PartitionStatus) string { return s.Waiting })
			return waits[0] != "" && waits[1] != "" && waits[2] != "" && waits[3] != ""
		})
		second := f.start().running(2)
		first.running(2)
		f.eventually("the next owner has handled its two", func() bool { return len(second.handler.runs()) == 2 })
		first.drain()
		second.running(bedPartitions)
		f.handled()
		for id := range int32(bedPartitions) {
			if diff := cmp.Diff([]string{fmt.Sprint("needs-registry-", id, " 1")}, f.outputs()[sessionOn(id, 1)]); diff != "" {
				f.t.Errorf("partition %d (-want +got):\n%s", id, diff)
			}
		}
		second.end()
	})
}

// TestWorker_ALongTurnCausesNoRebalance lets a turn take ten minutes under a session of six seconds.
func TestWorker_ALongTurnCausesNoRebalance(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		release := make(chan struct{})
		p := f.start(calm, handling(holdTurn("long", release))).running(bedPartitions)
		epochs := p.statusOf(func(s PartitionStatus) string { return strconv.FormatUint(s.Epoch, 10) })
		s := sessionOn(1, 1)
		f.produce(turn(s, "long"), turn(sessionOn(1, 2), "short"))
		<-time.After(10 * time.Minute)
		if diff := cmp.Diff(epochs, p.statusOf(func(s PartitionStatus) string { return strconv.FormatUint(s.Epoch, 10) })); diff != "" {
			f.t.Errorf("epochs (-before +after):\n%s", diff)
		}
		if at := f.committed()[1].At; at != 0 {
			f.t.Errorf("offset %d is committed while the first turn runs", at)
		}
		close(release)
		f.handled()
		if n := len(p.handler.runs()); n != 2 {
			f.t.Errorf("%d turns ran, want 2", n)
		}
		p.end()
	})
}

// TestWorker_SaysThatItsGroupSpeaksAnotherProtocol: a group whose other members balance in another way does not take the worker. It
// says so, is not ready, and gives up in the end.
func TestWorker_SaysThatItsGroupSpeaksAnotherProtocol(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		joins := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.InconsistentGroupProtocol, Count: -1, TopLevel: true})
		p := f.start(with(func(c *Config) { c.RefusalGrace = 2 * time.Minute }))
		f.eventually("it says why it is not ready", func() bool {
			return strings.Contains(p.worker.Status().ReadyReason, kerr.InconsistentGroupProtocol.Message)
		})
		<-p.ended
		if p.err == nil || joins.Hits() > 1000 {
			f.t.Errorf("after %d tries to join it ended with %v", joins.Hits(), p.err)
		}
	})
}

// TestWorker_WaitsForTheOldProcessOfItsInstanceID: when a pod is replaced, the group may still know the old one. The new one waits a
// little before it takes that for a second process.
func TestWorker_WaitsForTheOldProcessOfItsInstanceID(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		gone  time.Duration
		joins bool
	}{
		{"the old process ends", 10 * time.Second, true},
		{"it does not", 10 * time.Minute, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				taken := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.FencedInstanceID, Count: -1, TopLevel: true})
				began := time.Now()
				time.AfterFunc(tc.gone, taken.Remove)
				p := f.start(with(func(c *Config) { c.InstanceID = "pod-7" }))
				if tc.joins {
					p.running(bedPartitions)
					p.end()
					return
				}
				<-p.ended
				if took := time.Since(began); !errors.Is(p.err, txn.ErrFencedInstance) || took < fencedGrace || took > 2*fencedGrace {
					f.t.Errorf("after %s it ended with %v", took, p.err)
				}
			})
		})
	}
}

// TestWorker_IsNotFencedByAJoinOfItsOwn: a broker that hangs may take a request whose connection was given up long ago. A join of a
// static member that comes so late replaces the member that has joined meanwhile, and nobody is there to keep it alive. The worker is
// alone with its instance id and must not end for it, nor wait until that session is over.
func TestWorker_IsNotFencedByAJoinOfItsOwn(t *testing.T) {
	t.Parallel()
	static := with(func(c *Config) { c.InstanceID, c.SessionTimeout = "pod-7", 5*time.Minute })
	for name, run := range map[string]func(f *fake) (*process, *atomic.Bool){
		"it starts": func(f *fake) (*process, *atomic.Bool) {
			late := f.joinLate()
			return f.start(static), late
		},
		"it begins a new membership": func(f *fake) (*process, *atomic.Bool) {
			p := f.start(static).running(bedPartitions)
			before, late := p.epochs(), f.joinLate()
			p.worker.askRejoin()
			p.givenAnew(before)
			return p, late
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				began := time.Now()
				p, late := run(f)
				p.running(bedPartitions)
				if took := time.Since(began); !late.Load() || took > fencedGrace {
					f.t.Errorf("it runs after %s; a join came late: %t", took, late.Load())
				}
				f.load(40, 8)
				f.handled()
				p.end()
				f.exactlyOnce(8)
			})
		})
	}
}

// joinLate repeats a member's first join when the member has joined with it and asks for its partitions, and says when it has.
func (f *fake) joinLate() (late *atomic.Bool) {
	late = new(atomic.Bool)
	var join *kmsg.JoinGroupRequest
	f.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		if r := req.(*kmsg.JoinGroupRequest); r.MemberID == "" && join == nil {
			join = r
		}
		return nil, nil, false //nolint:nilnil // The broker answers.
	})
	once := false
	f.cluster.ControlKey(int16(kmsg.SyncGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		if once {
			return nil, nil, false //nolint:nilnil // As above.
		}
		once = true
		f.cluster.SleepControl(func() {
			ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
			defer cancel()
			joined, err := join.RequestWith(ctx, f.client())
			late.Store(err == nil && joined.ErrorCode == 0)
		})
		return nil, nil, false //nolint:nilnil // As above.
	})
	return late
}
