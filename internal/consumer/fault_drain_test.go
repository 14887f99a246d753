package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/netcut"
)

// outage takes the brokers away from one worker: they are silent, be it only to producers.
type outage struct {
	silent, silentToProducers atomic.Bool
	// endTxn, if set, says how the next end of a transaction is lost, which the outage begins with.
	endTxn atomic.Uint32
}

// on gives the worker wires of its own.
func (o *outage) on(b *bed) func(*setup) {
	wires := &netcut.Wires{Through: b.wires.Through}
	wires.BreakAt(o.at)
	return func(s *setup) {
		s.deps.NewClient = func(opts ...kgo.Opt) (*kgo.Client, error) {
			return b.newClient(append(opts, kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := wires.Dial(ctx, network, address)
				return &hole{conn, o}, err
			}))...)
		}
	}
}

// hole is a connection that swallows requests during an outage.
type hole struct {
	net.Conn

	in *outage
}

func (h *hole) Write(frame []byte) (int, error) {
	key := kmsg.Key(binary.BigEndian.Uint16(frame[4:]))
	if h.in.silent.Load() || key == kmsg.InitProducerID && h.in.silentToProducers.Load() {
		return len(frame), nil
	}
	return h.Conn.Write(frame)
}

func (o *outage) at(key kmsg.Key) netcut.Cut {
	if key != kmsg.EndTxn {
		return netcut.CutNothing
	}
	cut := netcut.Cut(o.endTxn.Swap(uint32(netcut.CutNothing)))
	if cut != netcut.CutNothing {
		o.silent.Store(true)
	}
	return cut
}

// TestWorker_EndsWithAnUnknownOutcomeAndNoBrokers stops a worker after the brokers went away in the middle of a cycle's end. What
// became of the cycle cannot be known before they are back, which may be never; a drain waited for it without a bound, and a second
// signal did not change that. Nothing is lost by going: the next owner finds out.
func TestWorker_EndsWithAnUnknownOutcomeAndNoBrokers(t *testing.T) {
	t.Parallel()
	const farewells = 2 * closeGrace // to close the group's client, and to say what that could not
	for _, tc := range []struct {
		name string
		cut  netcut.Cut
		// budget is for the drain, wait until the second signal; none comes when it is 0.
		budget, wait time.Duration
		rejoins      bool
		within       time.Duration
		want         error
	}{
		{name: "drained, committed", cut: netcut.CutAnswer, budget: time.Second, within: 2*time.Second + 3*closeGrace + farewells, want: ErrUnclean},
		{name: "drained, not committed", cut: netcut.CutRequest, budget: time.Second, within: 2*time.Second + 3*closeGrace + farewells, want: ErrUnclean},
		{name: "stopped at once", cut: netcut.CutAnswer, budget: time.Hour, wait: time.Minute, within: time.Minute + closeGrace + farewells, want: ErrStopped},
		{
			name: "stopped after the drain", cut: netcut.CutAnswer, budget: time.Second, wait: 3 * time.Second,
			within: 3*time.Second + closeGrace + farewells, want: ErrStopped,
		},
		{
			name: "drained between two memberships", cut: netcut.CutAnswer, budget: time.Second, rejoins: true,
			within: 3*closeGrace + farewells, want: ErrUnclean,
		},
		{
			name: "stopped between two memberships", cut: netcut.CutAnswer, budget: time.Hour, wait: time.Nanosecond, rejoins: true,
			within: closeGrace + farewells, want: ErrStopped,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				var o outage
				defer o.silent.Store(false)
				disk := vfs.NewMem()
				first := f.start(calm, o.on(f.bed), onDisk(disk), with(func(c *Config) {
					c.DrainBudget, c.CommitBudget, c.SessionTimeout = tc.budget, tc.budget, 45*time.Second
				})).running(bedPartitions)
				f.load(40, 8)
				f.handled()
				o.endTxn.Store(uint32(tc.cut))
				f.load(40, 8)
				f.eventually("the brokers are away", o.silent.Load)
				if tc.rejoins {
					first.worker.askRejoin()
				}
				<-time.After(20 * time.Second) // The end of the transaction has been given up.
				began := time.Now()
				first.stop()
				if tc.wait > 0 {
					<-time.After(tc.wait)
					first.worker.StopNow()
				}
				select {
				case <-first.ended:
				case <-time.After(10 * time.Minute):
					f.t.Fatal("the worker does not end")
				}
				if took := time.Since(began); !errors.Is(first.err, tc.want) || took > tc.within {
					f.t.Errorf("ended after %s with %v, want %v within %s", took, first.err, tc.want, tc.within)
				}
				first.close()
				second := f.start(onDisk(disk)).running(bedPartitions)
				f.load(40, 8)
				f.handled()
				f.exactlyOnce(8)
				second.end()
				second.stateIsTheChangelog()
			})
		})
	}
}
