package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// groupCore are the promises about membership, kept under both protocols, on the fake and on the real broker.
func groupCore() []groupTest {
	return []groupTest{
		{name: "a partition is handed over when its turns have ended", test: handOver},
		{name: "a worker more than there are partitions is ready and takes over", test: idleWorker},
		{name: "a static member that stops for good leaves its partitions to others", test: leaveForGood},
		{name: "a static member comes back to its partitions", test: comeBack},
		{name: "a static member that does not come back is replaced when its session ends", test: stayAway, notFake: ProtocolConsumer},
	}
}

type groupTest struct {
	name string
	test func(b *bed, protocol func(*setup))
	// notFake is the protocol of which the fake broker does not know this: it keeps the place of a static member for ever.
	notFake Protocol
}

func protocols() map[string]func(*setup) {
	return map[string]func(*setup){
		string(ProtocolClassic):  with(func(c *Config) { c.Protocol = ProtocolClassic }),
		string(ProtocolConsumer): with(func(c *Config) { c.Protocol = ProtocolConsumer }),
	}
}

func TestWorker_KeepsItsPromisesAboutMembershipOnTheFakeBroker(t *testing.T) {
	t.Parallel()
	for protocol, use := range protocols() {
		for _, tc := range groupCore() {
			if string(tc.notFake) == protocol {
				continue
			}
			t.Run(protocol+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { tc.test(newFake(t, 1, 2).bed, use) })
			})
		}
	}
}

// holder holds the turns of its choice until they are released, and notes those that were cancelled.
type holder struct {
	release chan struct{}

	mu        sync.Mutex
	cancelled []error
}

func (h *holder) echo() *echo {
	return &echo{on: func(ctx context.Context, _ *Assignment, rec *Record) error {
		if len(rec.Event.TurnID) < 4 || rec.Event.TurnID[:4] != "hold" {
			return nil
		}
		select {
		case <-h.release:
			return nil
		case <-ctx.Done():
			h.mu.Lock()
			defer h.mu.Unlock()
			h.cancelled = append(h.cancelled, context.Cause(ctx))
			return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
		}
	}}
}

// handOver lets a second worker join while a turn runs in every partition: those that move are drained, which takes as long as
// their turns, and nothing is cancelled, run twice, or taken over with something in flight.
func handOver(b *bed, protocol func(*setup)) {
	h := &holder{release: make(chan struct{})}
	long := with(func(c *Config) { c.DrainBudget = 30 * time.Second })
	first := b.start(protocol, long, handling(h.echo())).running(bedPartitions)
	for p := range int32(bedPartitions) {
		b.produce(turn(sessionOn(p, 1), fmt.Sprintf("hold-%d", p)), turn(sessionOn(p, 1), fmt.Sprintf("next-%d", p)))
	}
	b.eventually("a turn runs in every partition", func() bool { return len(first.handler.runs()) == bedPartitions })
	second := b.start(protocol, long, handling(h.echo()))
	draining := func() (n int) {
		for _, s := range first.status() {
			if s == stateDraining.String() {
				n++
			}
		}
		return n
	}
	b.eventually("two partitions are drained", func() bool { return draining() == 2 })
	if n := len(second.handler.runs()); n > 0 {
		b.t.Errorf("%d turns began elsewhere before their partition was let go of", n)
	}
	close(h.release)
	first.running(2)
	second.running(2)
	b.handled()
	if len(h.cancelled) > 0 {
		b.t.Errorf("turns were cancelled: %v", h.cancelled)
	}
	for _, a := range second.handler.assignments() {
		if !a.Clean {
			b.t.Errorf("partition %d was taken over with something in flight", a.Partition)
		}
	}
	for p := range int32(bedPartitions) {
		want := []string{fmt.Sprintf("hold-%d 1", p), fmt.Sprintf("next-%d 2", p)}
		if diff := cmp.Diff(want, b.outputs()[sessionOn(p, 1)]); diff != "" {
			b.t.Errorf("partition %d (-want +got):\n%s", p, diff)
		}
	}
	second.end()
	first.running(bedPartitions).end()
	first.stateIsTheChangelog()
}

// idleWorker starts two workers more than there are partitions.
func idleWorker(b *bed, protocol func(*setup)) {
	workers := make([]*process, bedPartitions+2)
	for i := range workers {
		workers[i] = b.start(protocol)
	}
	counts := func() (busy, idle int) {
		for _, p := range workers {
			s := p.worker.Status()
			switch {
			case !s.Ready || !s.Live:
			case len(s.Partitions) == 0:
				idle++
			case len(s.Partitions) == 1:
				busy++
			}
		}
		return busy, idle
	}
	b.eventually("all are ready and live, two of them idle", func() bool {
		busy, idle := counts()
		return busy == bedPartitions && idle == 2
	})
	b.load(40, 8)
	b.handled()
	for _, p := range workers {
		if len(p.worker.Status().Partitions) == 1 {
			p.end()
			break
		}
	}
	workers = remaining(workers)
	b.eventually("an idle one takes over", func() bool {
		busy, idle := counts()
		return busy == bedPartitions && idle == 1
	})
	b.load(40, 8)
	b.handled()
	b.exactlyOnce(8)
	for _, p := range workers {
		p.end()
	}
}

// remaining are the workers that run.
func remaining(workers []*process) (out []*process) {
	for _, p := range workers {
		select {
		case <-p.ended:
		default:
			out = append(out, p)
		}
	}
	return out
}

// leaveForGood scales in a static member that is told to leave: the other has its partitions long before a session could end.
func leaveForGood(b *bed, protocol func(*setup)) {
	static := func(name string) func(*setup) {
		return with(func(c *Config) {
			c.InstanceID, c.Txn.Instance, c.LeaveOnStop, c.SessionTimeout = name, b.name+name, true, 45*time.Second
		})
	}
	first := b.start(protocol, static("pod-0")).running(bedPartitions)
	second := b.start(protocol, static("pod-1")).running(2)
	first.running(2)
	b.load(40, 8)
	b.handled()
	began := time.Now()
	second.end()
	first.running(bedPartitions)
	if took := time.Since(began); took > 20*time.Second {
		b.t.Errorf("it took %s to have the partitions of a worker that left", took)
	}
	b.load(40, 8)
	b.handled()
	b.exactlyOnce(8)
	first.end()
	first.stateIsTheChangelog()
}

// comeBack restarts a static member that was drained: its partitions are its own again at once, and the other's stay where they are.
func comeBack(b *bed, protocol func(*setup)) {
	static := func(name string) func(*setup) {
		return with(func(c *Config) {
			c.InstanceID, c.Txn.Instance, c.SessionTimeout = name, b.name+name, 45*time.Second
		})
	}
	first := b.start(protocol, static("pod-0")).running(bedPartitions)
	second := b.start(protocol, static("pod-1")).running(2)
	first.running(2)
	mine := keysOf(first.status())
	second.end()
	began := time.Now()
	again := b.start(protocol, static("pod-1")).running(2)
	if took := time.Since(began); took > 20*time.Second {
		b.t.Errorf("it took %s to have the partitions back", took)
	}
	b.load(40, 8)
	b.handled()
	b.exactlyOnce(8)
	if diff := cmp.Diff(mine, keysOf(first.status())); diff != "" {
		b.t.Errorf("the partitions of the other (-before +after):\n%s", diff)
	}
	for _, a := range first.handler.assignments()[bedPartitions:] {
		b.t.Errorf("partition %d was assigned anew to the worker that stayed", a.Partition)
	}
	again.end()
	first.end()
	if errors.Join(first.err, again.err) != nil {
		b.t.Errorf("ended with %v and %v", first.err, again.err)
	}
}

// stayAway drains a static member that never comes again.
func stayAway(b *bed, protocol func(*setup)) {
	static := func(name string) func(*setup) {
		return with(func(c *Config) { c.InstanceID, c.Txn.Instance = name, b.name+name })
	}
	first := b.start(protocol, static("pod-0")).running(bedPartitions)
	second := b.start(protocol, static("pod-1")).running(2)
	first.running(2)
	second.end()
	first.running(bedPartitions)
	b.load(40, 8)
	b.handled()
	b.exactlyOnce(8)
	first.end()
}

func keysOf(m map[int32]string) map[int32]bool {
	out := make(map[int32]bool, len(m))
	for k := range m {
		out[k] = true
	}
	return out
}
