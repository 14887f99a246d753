package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/schemas"
)

func inBubble(t *testing.T, test func(f *fake)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(newFake(t, 1, 2)) })
}

// TestWorker_GoesOnAfterEveryErrorOfACycle goes through what brokers answer to the requests of a cycle: whatever it is, every
// turn has its output once.
func TestWorker_GoesOnAfterEveryErrorOfACycle(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		key  kmsg.Key
		err  *kerr.Error
	}{
		{"offsets, the group has rebalanced", kmsg.TxnOffsetCommit, kerr.IllegalGeneration},
		{"offsets, the member epoch is stale", kmsg.TxnOffsetCommit, kerr.StaleMemberEpoch},
		{"offsets, the member is unknown", kmsg.TxnOffsetCommit, kerr.UnknownMemberID},
		{"offsets, fenced", kmsg.TxnOffsetCommit, kerr.InvalidProducerEpoch},
		{"offsets, forbidden", kmsg.TxnOffsetCommit, kerr.GroupAuthorizationFailed},
		{"offsets, timed out", kmsg.TxnOffsetCommit, kerr.RequestTimedOut},
		{"produce, fenced", kmsg.Produce, kerr.InvalidProducerEpoch},
		{"produce, must be aborted", kmsg.Produce, kerr.TransactionAbortable},
		{"produce, the topic is not known yet", kmsg.Produce, kerr.UnknownTopicOrPartition},
		{"end, unknown error", kmsg.EndTxn, kerr.UnknownServerError},
		{"end, fenced", kmsg.EndTxn, kerr.ProducerFenced},
		{"end, the state is another", kmsg.EndTxn, kerr.InvalidTxnState},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(f *fake) {
				p := f.start().running(bedPartitions)
				f.load(40, 8)
				f.handled()
				fault := kfake.Fault{Keys: []kmsg.Key{tc.key}, Err: tc.err, Count: 2, TopLevel: tc.key == kmsg.EndTxn}
				if tc.key == kmsg.Produce {
					fault.Topic = f.changelog.Name
				}
				met := f.cluster.Fault(fault)
				for range 10 {
					f.load(8, 8)
					<-time.After(5 * time.Millisecond)
				}
				f.handled()
				if met.Hits() == 0 {
					f.t.Error("the fault was never met")
				}
				f.exactlyOnce(8)
				p.running(bedPartitions).end()
				p.stateIsTheChangelog()
			})
		})
	}
}

func TestWorker_HaltsAPartitionThatIsOutOfRangeOnceAndAlone(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		s := sessionOn(1, 1)
		f.produce(turn(s, "one"), turn(s, "two"))
		f.handled()
		p.drain()
		f.produce(turn(s, "three"), turn(s, "four"))
		_, err := f.admin.DeleteRecords(f.t.Context(), kadm.Offsets{f.turns.Name: {1: {Topic: f.turns.Name, Partition: 1, At: 3}}})
		must(f.t, err)
		p = f.start()
		f.produce(turn(sessionOn(2, 1), "other"))
		f.eventually("partition 1 is halted", func() bool { return p.status()[1] == stateHalted.String() })
		f.eventually("the others go on", func() bool { return f.committed()[2].At == 1 })
		fetches := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
		<-time.After(10 * time.Second)
		if n := fetches.Hits(); n > 1000 { // One each 20 ms is the idle fetch of the others.
			f.t.Errorf("%d fetches in 10 s", n)
		}
		if reason := p.worker.Status().ReadyReason; !strings.Contains(reason, "out of range") {
			f.t.Errorf("ready: %q", reason)
		}
		if at := f.committed()[1].At; at != 2 {
			f.t.Errorf("offset %d is committed, want 2 as before", at)
		}
		p.end()
	})
}

func TestWorker_HaltsWhenTheChangelogWasTruncated(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.load(40, 8)
		f.handled()
		p.drain()
		_, err := f.admin.DeleteTopic(f.t.Context(), f.changelog.Name)
		must(f.t, err)
		f.changelog = f.topic(f.changelog.Name, nil)
		p = f.start()
		f.eventually("all partitions are halted", func() bool {
			return cmp.Equal(sorted(p.status()), []string{"halted", "halted", "halted", "halted"})
		})
		if reason := p.worker.Status().ReadyReason; !strings.Contains(reason, errTruncated.Error()) {
			f.t.Errorf("ready: %q", reason)
		}
		p.end()
	})
}

// TestWorker_TrustsItsDiskOnlyWhenCertain gives a worker the disk of an earlier one, under conditions that make it stale.
func TestWorker_TrustsItsDiskOnlyWhenCertain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		wiped  bool
		change func(f *fake, s *setup)
	}{
		{"nothing has changed", false, func(*fake, *setup) {}},
		{"it is older than tombstones are kept", true, func(_ *fake, s *setup) { s.cfg.ChangelogDeleteRetention = time.Hour }},
		{"the changelog was cut below it", true, func(f *fake, _ *setup) {
			f.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
				f.cluster.KeepControl()
				r, ok := req.(*kmsg.OffsetForLeaderEpochRequest)
				if !ok || r.Topics[0].Topic != f.changelog.Name {
					return nil, nil, false
				}
				resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
				rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
				rt.Topic = f.changelog.Name
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.EndOffset = r.Topics[0].Partitions[0].Partition, 1
				rt.Partitions = append(rt.Partitions, rp)
				resp.Topics = append(resp.Topics, rt)
				return resp, nil, true
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(f *fake) {
				fs := vfs.NewMem()
				first := f.start(onDisk(fs)).running(bedPartitions)
				f.load(80, 8)
				f.handled()
				first.drain()
				<-time.After(2 * time.Hour)
				second := f.start(onDisk(fs), func(s *setup) { tc.change(f, s) }).running(bedPartitions)
				for id, n := range second.restored() {
					if (n > 0) != tc.wiped {
						f.t.Errorf("partition %d read %d records", id, n)
					}
				}
				f.load(80, 8)
				f.handled()
				f.exactlyOnce(8)
				second.end()
				second.stateIsTheChangelog()
			})
		})
	}
}

// TestWorker_ReadsPastWhatWasCompactedAway has its story in several stream processors: when nothing is left of the end of a
// changelog, a restore that counts records waits for ever.
func TestWorker_ReadsPastWhatWasCompactedAway(t *testing.T) {
	inBubble(t, func(f *fake) {
		first := f.start().running(bedPartitions)
		f.load(40, 8)
		f.handled()
		first.drain()
		empty := atomic.Int32{}
		f.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			r := req.(*kmsg.FetchRequest)
			if len(r.Topics) != 1 || r.Topics[0].TopicID != f.changelog.ID && r.Topics[0].Topic != f.changelog.Name {
				return nil, nil, false
			}
			// The broker has nothing from here on, though the log ends further on.
			empty.Add(1)
			resp := r.ResponseKind().(*kmsg.FetchResponse)
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = r.Topics[0].Topic, r.Topics[0].TopicID
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.HighWatermark, rp.LastStableOffset = r.Topics[0].Partitions[0].Partition, 1000, 1000
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		second := f.start().running(bedPartitions)
		if empty.Load() == 0 {
			f.t.Error("nothing was fetched")
		}
		second.end()
	})
}

func TestWorker_RefusesAnotherPartitionCount(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.load(20, 8)
		f.handled()
		p.drain()
		p = f.start(with(func(c *Config) { c.Turns.Partitions, c.Changelog.Partitions = 8, 8 }))
		<-p.ended
		count, ok := errors.AsType[*PartitionCountError](p.err)
		if !ok || count.Was != 4 || count.Is != 8 || !strings.Contains(count.Error(), "to migrate") {
			f.t.Fatalf("ended with %v", p.err)
		}
	})
}

func TestWorker_StopsWhenPartitionsAreAdded(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		_, err := f.admin.CreatePartitions(f.t.Context(), 2, f.turns.Name)
		must(f.t, err)
		<-p.ended
		if _, ok := errors.AsType[*PartitionCountError](p.err); !ok {
			f.t.Fatalf("ended with %v", p.err)
		}
	})
}

// TestWorker_StartsAtTheRecordedPosition loses the group's offsets: the state still knows what is done.
func TestWorker_StartsAtTheRecordedPosition(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.load(40, 8)
		f.handled()
		p.drain()
		_, err := f.admin.DeleteGroup(f.t.Context(), f.name)
		must(f.t, err)
		f.load(40, 8)
		second := f.start().running(bedPartitions)
		f.handled()
		f.exactlyOnce(8)
		if n := len(second.handler.runs()); n != 40 {
			f.t.Errorf("%d turns ran, want the 40 new ones", n)
		}
		second.end()
	})
}

func TestWorker_PinsWhereItBegins(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.eventually("every partition has a committed offset", func() bool { return len(f.committed()) == bedPartitions })
		for id, o := range f.committed() {
			if m, ok := txn.ParseMetadata(o.Metadata); !ok || m.Clean || o.At != 0 {
				f.t.Errorf("partition %d is committed at %d with %q", id, o.At, o.Metadata)
			}
		}
		p.end()
	})
}

// TestWorker_WaitsForTheRegistry lets a decoder fail for a while in one partition: nothing is lost, nobody else waits, and the
// registry is not asked all the time.
func TestWorker_WaitsForTheRegistry(t *testing.T) {
	inBubble(t, func(f *fake) {
		down := &flakyDecoder{Decoder: schemas.NewDecoder(schemas.DecoderOptions{}), until: time.Now().Add(10 * time.Minute)}
		p := f.start(func(s *setup) { s.deps.Decoder = down }).running(bedPartitions)
		s := sessionOn(1, 1)
		f.produce(turn(s, "first"), turn(s, "needs-registry"), turn(s, "last"), turn(sessionOn(2, 1), "other"))
		f.eventually("the other is done", func() bool { return f.committed()[2].At == 1 })
		f.eventually("partition 1 waits", func() bool {
			return p.statusOf(func(s PartitionStatus) string { return s.Waiting })[1] != ""
		})
		<-time.After(11 * time.Minute)
		f.handled()
		if diff := cmp.Diff([]string{"first 1", "needs-registry 2", "last 3"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		if n := down.asked.Load(); n > 40 {
			f.t.Errorf("the registry was asked %d times in 10 minutes", n)
		}
		if waits := p.statusOf(func(s PartitionStatus) string { return s.Waiting })[1]; waits != "" {
			f.t.Errorf("partition 1 still waits: %s", waits)
		}
		p.end()
	})
}

type flakyDecoder struct {
	Decoder

	until time.Time
	asked atomic.Int32
}

func (d *flakyDecoder) Decode(ctx context.Context, value []byte, headers []schemas.Header) (*schemas.Decoded, error) {
	if bytes.Contains(value, []byte("needs-registry")) && time.Now().Before(d.until) {
		d.asked.Add(1)
		return nil, &schemas.Error{Class: schemas.ClassRetryable, Code: schemas.CodeSchemaUnknown, Message: "the registry does not answer"}
	}
	if bytes.Contains(value, []byte("panics")) {
		panic("a bug of the decoder")
	}
	return d.Decoder.Decode(ctx, value, headers)
}

func TestWorker_SurvivesAPanicOfTheDecoder(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start(func(s *setup) { s.deps.Decoder = &flakyDecoder{Decoder: schemas.NewDecoder(schemas.DecoderOptions{})} })
		s := sessionOn(1, 1)
		f.produce(turn(s, "panics"), turn(s, "good"))
		f.handled()
		if diff := cmp.Diff([]string{"good 1"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		if letters := f.deadLetters(); len(letters) != 1 || letters[0].Reason != "undecodable" {
			f.t.Errorf("dead letters %+v", letters)
		}
		p.end()
	})
}

// TestWorker_SkipsABatchThatWouldFillTheMemory sends a batch that decompresses to more than the worker takes.
func TestWorker_SkipsABatchThatWouldFillTheMemory(t *testing.T) {
	inBubble(t, func(f *fake) {
		s := sessionOn(1, 1)
		f.produce(turn(s, "before"))
		bomb := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()),
			kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerLinger(10*time.Millisecond))
		var records []*kgo.Record
		for range 4 {
			records = append(records, &kgo.Record{Topic: f.turns.Name, Partition: 1, Key: []byte(s), Value: make([]byte, 1<<20)})
		}
		must(f.t, bomb.ProduceSync(f.t.Context(), records...).FirstErr())
		f.produce(turn(s, "after"))
		p := f.start(with(func(c *Config) { c.MaxDecompressBytes = 2 << 20 }))
		f.handled()
		if diff := cmp.Diff([]string{"before 1", "after 2"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		letters := f.read(f.letters.Name)
		if len(letters) != 1 {
			f.t.Fatalf("%d dead letters, want 1", len(letters))
		}
		own := map[string]string{}
		for _, h := range letters[0].Headers {
			own[h.Key] = string(h.Value)
		}
		if own[headerReason] != "too_large" || own[headerOffset] != "4" || own[headerCut] != "true" || !strings.Contains(own[headerDetail], "1 to 4") {
			f.t.Errorf("headers %v", own)
		}
		p.end()
	})
}

// TestWorker_BeginsNothingWhenTheGroupIsSilent cuts the worker off from the group: after half a session nothing begins, until the
// group answers.
func TestWorker_BeginsNothingWhenTheGroupIsSilent(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start(with(func(c *Config) { c.SessionTimeout = 10 * time.Second })).running(bedPartitions)
		a := p.handler.assignments()[0]
		must(f.t, a.Permit(f.t.Context()))
		var silent atomic.Bool
		silent.Store(true)
		f.cluster.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			f.cluster.SleepControl(func() {
				for silent.Load() {
					<-time.After(10 * time.Millisecond)
				}
			})
			return nil, nil, false
		})
		<-time.After(6 * time.Second)
		short, cancel := context.WithTimeout(f.t.Context(), time.Second)
		defer cancel()
		if err := a.Permit(short); !errors.Is(err, context.DeadlineExceeded) {
			f.t.Errorf("Permit without a heartbeat for 6 s: %v", err)
		}
		silent.Store(false)
		long, cancel := context.WithTimeout(f.t.Context(), 2*time.Second)
		defer cancel()
		must(f.t, a.Permit(long))
		p.end()
	})
}

func TestWorker_LosesEverythingWhenItsSessionEnds(t *testing.T) {
	inBubble(t, func(f *fake) {
		var silent atomic.Bool
		cause := make(chan error, 1)
		first := f.start(with(func(c *Config) { c.SessionTimeout = 2 * time.Second }), handling(&echo{
			on: func(ctx context.Context, a *Assignment, rec *Record) error {
				if rec.Event.TurnID != "long" {
					return nil
				}
				<-ctx.Done()
				cause <- errors.Join(context.Cause(ctx), a.Permit(context.WithoutCancel(ctx)))
				return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
			},
		}), func(s *setup) {
			s.deps.NewClient = func(opts ...kgo.Opt) (*kgo.Client, error) {
				w := &wires{dial: f.wires.dial}
				w.at = func(kmsg.Key) damage {
					if silent.Load() {
						return cutRequest
					}
					return cutNothing
				}
				return f.newClient(append(opts, kgo.Dialer(w.Dial))...)
			}
		}).running(bedPartitions)
		s := sessionOn(0, 1)
		f.produce(turn(s, "long"))
		f.eventually("the turn runs", func() bool { return len(first.handler.runs()) == 1 })
		silent.Store(true)
		second := f.start().running(bedPartitions)
		f.handled()
		silent.Store(false)
		if err := <-cause; !errors.Is(err, ErrLost) {
			f.t.Errorf("the turn was cancelled by %v", err)
		}
		first.running(2)
		f.load(40, 8)
		f.handled()
		if diff := cmp.Diff([]string{"long 1"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		second.end()
		first.running(bedPartitions).end()
		first.stateIsTheChangelog()
	})
}

func TestWorker_GivesUpWhenItIsRefusedForTooLong(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start(with(func(c *Config) { c.RefusalGrace = 5 * time.Minute })).running(bedPartitions)
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: f.output.Name, Err: kerr.TopicAuthorizationFailed, Count: -1})
		began := time.Now()
		f.load(1, 1)
		f.eventually("it is not ready", func() bool { return !p.worker.Status().Ready })
		<-p.ended
		if took := time.Since(began); !errors.Is(p.err, kerr.TopicAuthorizationFailed) || took < 4*time.Minute || took > 7*time.Minute {
			f.t.Errorf("ended after %s with %v", took, p.err)
		}
	})
}

func TestWorker_EndsWhenNoCycleSucceeds(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start(with(func(c *Config) { c.Stall = time.Minute })).running(bedPartitions)
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.RebalanceInProgress, Count: -1})
		f.load(1, 1)
		<-p.ended
		if !errors.Is(p.err, errStalled) {
			f.t.Errorf("ended with %v", p.err)
		}
	})
}

func TestWorker_EndsWhenItsInstanceIDIsTaken(t *testing.T) {
	inBubble(t, func(f *fake) {
		static := with(func(c *Config) { c.InstanceID = "pod-7" })
		first := f.start(static).running(bedPartitions)
		second := f.start(static).running(bedPartitions)
		<-first.ended
		if !errors.Is(first.err, txn.ErrFencedInstance) {
			f.t.Errorf("the first ended with %v", first.err)
		}
		f.load(40, 8)
		f.handled()
		f.exactlyOnce(8)
		second.end()
	})
}

func TestWorker_ComesBackToItsPartitionsWithoutARebalance(t *testing.T) {
	inBubble(t, func(f *fake) {
		fs := vfs.NewMem()
		static := with(func(c *Config) { c.InstanceID = "pod-7"; c.Txn.Instance = "pod-7" })
		first := f.start(static, onDisk(fs)).running(bedPartitions)
		f.load(40, 8)
		f.handled()
		first.kill()
		began := time.Now()
		second := f.start(static, onDisk(fs)).running(bedPartitions)
		if took := time.Since(began); took > time.Second {
			f.t.Errorf("it took %s", took)
		}
		f.load(40, 8)
		f.handled()
		f.exactlyOnce(8)
		second.end()
		second.stateIsTheChangelog()
	})
}

func TestWorker_StopsAtOnce(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start(handling(&echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
		}}), with(func(c *Config) { c.DrainBudget = time.Hour })).running(bedPartitions)
		f.load(4, 4)
		f.eventually("turns run", func() bool { return len(p.handler.runs()) == 4 })
		began := time.Now()
		p.stop()
		<-time.After(time.Minute)
		p.worker.StopNow()
		<-p.ended
		if took := time.Since(began); !errors.Is(p.err, ErrStopped) || took > time.Minute+closeGrace {
			f.t.Errorf("stopped after %s with %v", took, p.err)
		}
		second := f.start(with(func(c *Config) { c.DrainBudget = time.Second })).running(bedPartitions)
		f.handled()
		f.exactlyOnce(4)
		second.end()
	})
}

// TestWorker_SpeaksTheNextProtocol runs the heart of the suite with KIP-848.
func TestWorker_SpeaksTheNextProtocol(t *testing.T) {
	t.Parallel()
	next := func(c *Config) { c.Protocol = ProtocolConsumer }
	t.Run("turns are handled and partitions move", func(t *testing.T) {
		inBubble(t, func(f *fake) {
			first := f.start(with(next)).running(bedPartitions)
			f.load(100, 16)
			second := f.start(with(next)).running(2)
			first.running(2)
			f.load(100, 16)
			f.handled()
			first.end()
			second.running(bedPartitions)
			f.load(100, 16)
			f.handled()
			f.exactlyOnce(16)
			second.end()
			second.stateIsTheChangelog()
		})
	})
}

func TestWorker_CommitsNothingOfAPartitionThatIsLostInTheMiddleOfACycle(t *testing.T) {
	inBubble(t, func(f *fake) {
		var worker *Worker
		var armed atomic.Bool
		p := f.start(func(s *setup) {
			s.deps.Hooks.Txn.Before = func(_ context.Context, step txn.Step) {
				if step == txn.StepCheck && armed.CompareAndSwap(true, false) {
					worker.partition(1).end(stateGone, ErrLost)
					worker.askRejoin()
				}
			}
		}).running(bedPartitions)
		worker = p.worker
		armed.Store(true)
		f.load(64, 64)
		f.handled()
		f.exactlyOnce(64)
		if armed.Load() {
			f.t.Error("no cycle was met")
		}
		p.running(bedPartitions).end()
		p.stateIsTheChangelog()
	})
}

// TestWorker_KeepsAnIdleDiskTrusted leaves a worker idle for days, kills it, and starts another with its disk.
func TestWorker_KeepsAnIdleDiskTrusted(t *testing.T) {
	inBubble(t, func(f *fake) {
		fs := vfs.NewMem()
		slow := with(func(c *Config) { c.HeartbeatInterval, c.FetchMaxWait = 2*time.Second, 5*time.Second })
		first := f.start(onDisk(fs), slow).running(bedPartitions)
		f.load(80, 8)
		f.handled()
		<-time.After(36 * time.Hour)
		first.kill()
		second := f.start(onDisk(fs), slow).running(bedPartitions)
		for id, n := range second.restored() {
			if n > 0 {
				f.t.Errorf("partition %d read %d records", id, n)
			}
		}
		second.end()
	})
}

// TestWorker_WaitsForTheChangesOfAnOlderOwner restores while a transaction of an older owner is decided but its markers are not
// written in the changelog yet: its records are beyond the last stable offset, and belong to the state.
func TestWorker_WaitsForTheChangesOfAnOlderOwner(t *testing.T) {
	inBubble(t, func(f *fake) {
		older := f.client(kgo.TransactionalID("older"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(time.Minute))
		must(f.t, older.BeginTransaction())
		must(f.t, older.ProduceSync(f.t.Context(), &kgo.Record{Topic: f.changelog.Name, Partition: 1, Key: []byte("late"), Value: []byte{1, 7}}).FirstErr())
		p := f.start()
		f.eventually("the others run", func() bool {
			return cmp.Equal(sorted(p.status()), []string{"running", "restoring", "running", "running"})
		})
		<-time.After(5 * time.Second)
		if got := p.status()[1]; got != "restoring" {
			f.t.Errorf("partition 1 is %s while a transaction is open", got)
		}
		must(f.t, older.EndTransaction(f.t.Context(), kgo.TryCommit))
		p.running(bedPartitions)
		p.end()
		p.stateIsTheChangelog()
	})
}

// TestWorker_ALostPartitionStopsRestoring takes a partition away while it is being restored.
func TestWorker_ALostPartitionStopsRestoring(t *testing.T) {
	inBubble(t, func(f *fake) {
		older := f.client(kgo.TransactionalID("older"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(time.Minute))
		must(f.t, older.BeginTransaction())
		for id := range int32(bedPartitions) {
			must(f.t, older.ProduceSync(f.t.Context(), &kgo.Record{Topic: f.changelog.Name, Partition: id, Key: []byte("late"), Value: []byte{1, 7}}).FirstErr())
		}
		first := f.start()
		f.eventually("all are being restored", func() bool {
			return cmp.Equal(sorted(first.status()), []string{"restoring", "restoring", "restoring", "restoring"})
		})
		second := f.start()
		f.eventually("two have moved", func() bool { return len(first.status()) == 2 && len(second.status()) == 2 })
		must(f.t, older.EndTransaction(f.t.Context(), kgo.TryCommit))
		first.running(2)
		second.running(2)
		f.load(40, 8)
		f.handled()
		f.exactlyOnce(8)
		first.end()
		second.running(bedPartitions).end()
	})
}

func TestWorker_HaltsWhoWritesToATopicThatIsGone(t *testing.T) {
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: f.output.Name, Err: kerr.UnknownTopicID, Count: -1})
		f.produce(turn(sessionOn(1, 1), "one"))
		f.eventually("partition 1 is halted", func() bool {
			return cmp.Equal(sorted(p.status()), []string{"running", "halted", "running", "running"})
		})
		if at := f.committed()[1].At; at != 0 {
			f.t.Errorf("offset %d is committed", at)
		}
		p.end()
	})
}

// TestWorker_LetsTheHandlerMendWhatTheBrokerRefuses makes the broker refuse one record for good.
func TestWorker_LetsTheHandlerMendWhatTheBrokerRefuses(t *testing.T) {
	t.Parallel()
	for _, mends := range []bool{true, false} {
		t.Run(fmt.Sprintf("mends %t", mends), func(t *testing.T) {
			inBubble(t, func(f *fake) {
				fault := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: f.output.Name, Err: kerr.MessageTooLarge, Count: -1})
				h := &mender{echo: &echo{topic: f.output.Name}}
				var deps Handler = h
				if !mends {
					deps = h.echo
				}
				h.mend = func() { fault.Remove() }
				p := f.start(func(s *setup) { s.deps.Handler = deps }).running(bedPartitions)
				s := sessionOn(1, 1)
				f.produce(turn(s, "one"), turn(sessionOn(2, 1), "two"))
				if !mends {
					f.eventually("the writers are halted", func() bool {
						return cmp.Equal(sorted(p.status()), []string{"running", "halted", "halted", "running"})
					})
					p.end()
					return
				}
				f.handled()
				r := h.refused.Load()
				if r == nil || r.Topic != f.output.Name || r.Output == nil || !errors.Is(r.Err, kerr.MessageTooLarge) {
					f.t.Errorf("refused %+v", r)
				}
				p.end()
			})
		})
	}
}

type mender struct {
	*echo

	mend    func()
	refused atomic.Pointer[Refusal]
}

func (m *mender) Open(ctx context.Context, a *Assignment) (PartitionHandler, error) {
	p, err := m.echo.Open(ctx, a)
	return &menderPartition{PartitionHandler: p, mender: m}, err
}

type menderPartition struct {
	PartitionHandler

	mender *mender
}

func (p *menderPartition) Refused(_ context.Context, r Refusal) error {
	p.mender.refused.Store(&r)
	p.mender.mend()
	return nil
}
