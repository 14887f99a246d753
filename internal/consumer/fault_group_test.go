package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/test/netcut"
)

// TestWorker_BeginsNothingWhenTheGroupIsSilent cuts the worker off from the group: after half a session nothing begins, until the
// group answers.
func TestWorker_BeginsNothingWhenTheGroupIsSilent(t *testing.T) {
	t.Parallel()
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
			return nil, nil, false //nolint:nilnil // The broker answers.
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
	t.Parallel()
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
				w := &netcut.Wires{Through: f.wires.Through}
				w.BreakAt(func(kmsg.Key) netcut.Cut {
					if silent.Load() {
						return netcut.CutRequest
					}
					return netcut.CutNothing
				})
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

func TestWorker_EndsWhenItsInstanceIDIsTaken(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
		t.Parallel()
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
	t.Parallel()
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

// TestWorker_SaysThatItsSessionTimeoutIsRefused sets one that the brokers do not take. It was retried for ever without a word.
func TestWorker_SaysThatItsSessionTimeoutIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start(with(func(c *Config) { c.SessionTimeout, c.RefusalGrace = 45*time.Minute, time.Minute }))
		f.eventually("the reason is told", func() bool { return strings.Contains(p.worker.Status().ReadyReason, "INVALID_SESSION_TIMEOUT") })
		<-p.ended
		if !errors.Is(p.err, kerr.InvalidSessionTimeout) {
			f.t.Errorf("ended with %v", p.err)
		}
	})
}
