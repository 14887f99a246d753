package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/test/netcut"
)

// A turn event is bounded with all that belongs to its record: what is below and at the limit runs, what is one byte above it is a
// dead letter that says both numbers.
func TestWorker_TakesATurnEventAtTheLimitAndRefusesOneAbove(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		const limit = 5000
		p := f.start(with(func(c *Config) { c.MaxTurnBytes = limit })).running(bedPartitions)
		s := sessionOn(1, 1)
		sized := func(id string, n int) *kgo.Record {
			r := turn(s, id)
			r.Headers = []kgo.RecordHeader{{Key: "ballast"}}
			rec := newRecord(r)
			r.Headers[0].Value = make([]byte, n-recordSize(rec.Key, rec.value, rec.Headers))
			return r
		}
		f.produce(sized("below", limit-1), sized("at", limit), sized("above", limit+1))
		f.handled()
		want := []string{"below 1", "at 2", "rejected above too_large"}
		if got := fmt.Sprint(sortedBy(f.outputs()[s], "below", "at", "rejected")); got != fmt.Sprint(want) && got != fmt.Sprint(want[:2]) {
			f.t.Errorf("outputs %s, want %s", got, want)
		}
		if letters := f.deadLetters(); len(letters) != 1 || letters[0].Reason != "too_large" {
			f.t.Errorf("dead letters %+v", letters)
		}
		for _, h := range f.read(f.letters.Name)[0].Headers {
			if h.Key == headerDetail && string(h.Value) != "the record has 5001 bytes, the limit is 5000" {
				f.t.Errorf("the detail is %q", h.Value)
			}
		}
		p.end()
	})
}

// The limits of turns in flight hold turns back and end nothing: exactly as many run as they allow, of one partition and of all.
func TestWorker_RunsAsManyTurnsAsItMay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ window, all, sent, partitions, want int }{
		{window: 4, all: 100, sent: 3, partitions: 1, want: 3},
		{window: 4, all: 100, sent: 4, partitions: 1, want: 4},
		{window: 4, all: 100, sent: 5, partitions: 1, want: 4},
		{window: 4, all: 10, sent: 9, partitions: 3, want: 9},
		{window: 4, all: 10, sent: 10, partitions: 3, want: 10},
		{window: 4, all: 10, sent: 11, partitions: 3, want: 10},
	} {
		t.Run(fmt.Sprintf("%d turns on %d partitions, %d and %d allowed", tc.sent, tc.partitions, tc.window, tc.all), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				var running, most atomic.Int64
				h := &echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					return sleep(ctx, 20*time.Second)
				}}
				p := f.start(handling(h), with(func(c *Config) { c.Window, c.MaxInFlight = tc.window, tc.all })).running(bedPartitions)
				for i := range tc.sent {
					f.produce(turn(sessionOn(int32(i%tc.partitions), i), fmt.Sprintf("t%d", i)))
				}
				<-time.After(10 * time.Second)
				if n := int(running.Load()); n != tc.want {
					f.t.Errorf("%d turns run, want %d", n, tc.want)
				}
				f.handled()
				if n := int(most.Load()); n != tc.want {
					f.t.Errorf("%d turns ran at once, want %d", n, tc.want)
				}
				p.end()
			})
		})
	}
}

// TestWorker_HoldsABoundedAmountWhileBrokersAreAway takes the brokers away from the producers of the worker, and leaves it the topic
// of turns, which goes on filling. Turns go on until what they have made fills the buffer, then they wait, then no turn begins, then
// nothing is fetched. When the brokers are back everything is done, once.
func TestWorker_HoldsABoundedAmountWhileBrokersAreAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		const (
			buffer = 8 << 20 // 2 MiB for each partition: a quarter for records that wait, the rest for turns and effects.
			chunk  = 64 << 10
			chunks = 6
			turns  = 400
		)
		var steps atomic.Int64
		h := &echo{on: func(ctx context.Context, a *Assignment, rec *Record) error {
			for i := range chunks {
				if err := a.Permit(ctx); err != nil {
					return fmt.Errorf("%w: %w", ErrSuspended, err)
				}
				steps.Add(1)
				err := a.State.Add(&statestore.Effect{Offset: statestore.NoOffset, Mutations: []statestore.Mutation{{
					Op: statestore.OpSet, Key: fmt.Sprintf("chunk/%s/%d", rec.Event.SessionID, i%2), Value: append([]byte{statestore.Format}, make([]byte, chunk)...),
				}}})
				if err != nil {
					return fmt.Errorf("%w: %w", ErrSuspended, err)
				}
			}
			return nil
		}}
		p := f.start(handling(h), with(func(c *Config) { c.MaxBufferedBytes, c.Stall = buffer, time.Hour })).running(bedPartitions)
		f.wires.BreakAt(func(key kmsg.Key) netcut.Cut {
			if slices.Contains([]kmsg.Key{kmsg.Produce, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn}, key) {
				return netcut.CutRequest
			}
			return netcut.CutNothing
		})
		away := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.Dialer(f.wires.Through)) // Producers have a way of their own.
		for i := range turns {
			r := turn(sessionOn(int32(i%bedPartitions), i), fmt.Sprintf("turn-%d", i))
			r.Topic, r.Headers = f.turns.Name, []kgo.RecordHeader{{Key: "ballast", Value: make([]byte, 16<<10)}}
			must(f.t, away.ProduceSync(f.t.Context(), r).FirstErr())
		}
		<-time.After(3 * time.Minute)
		stuck := steps.Load()
		var held int64
		for _, part := range p.worker.all() {
			part.mu.Lock()
			waiting := part.mu.bytes
			part.mu.Unlock()
			sum := part.store.PendingBytes() + part.held.Load() + waiting
			// What has begun may end: a chunk of each turn that was let go on at the same moment, and one fetch.
			if room := int64(2 * buffer / bedPartitions); sum > room {
				f.t.Errorf("partition %d holds %d bytes: %d of effects, %d of turns, %d of records; want at most %d",
					part.id, sum, part.store.PendingBytes(), part.held.Load(), waiting, room)
			}
			if !part.choked() || !part.paused.Load() {
				f.t.Errorf("partition %d is choked %t and paused %t, want both", part.id, part.choked(), part.paused.Load())
			}
			held += sum
		}
		<-time.After(3 * time.Minute)
		if n := steps.Load(); n != stuck || n == 0 || n >= turns*chunks {
			f.t.Errorf("%d steps were taken, %d of them after the buffer was full", n, n-stuck)
		}
		if status := p.worker.Status(); !status.Live {
			f.t.Errorf("the worker is not live: %s", status.LiveReason)
		}
		f.wires.BreakAt(nil)
		f.handled()
		if n := steps.Load(); n != turns*chunks {
			f.t.Errorf("%d steps were taken in all, want %d: each once", n, turns*chunks)
		}
		n := 0
		for _, values := range f.outputs() {
			n += len(values)
		}
		if n != turns {
			f.t.Errorf("%d outputs, want %d", n, turns)
		}
		for _, part := range p.worker.all() {
			if sum := part.store.PendingBytes() + part.held.Load(); sum != 0 {
				f.t.Errorf("partition %d still holds %d bytes", part.id, sum)
			}
		}
		f.t.Logf("held %d bytes at most", held)
		p.end()
		p.stateIsTheChangelog()
	})
}

// A turn that waits for room is told when its partition drains: nothing may begin then.
func TestPermit_SaysThatAPartitionDrainsWhileATurnWaitsForRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		waits := make(chan error, 1)
		h := &echo{on: func(ctx context.Context, a *Assignment, _ *Record) error {
			must(f.t, a.State.Add(&statestore.Effect{Offset: statestore.NoOffset, Mutations: []statestore.Mutation{{
				Op: statestore.OpSet, Key: "large", Value: append([]byte{statestore.Format}, make([]byte, 600<<10)...),
			}}}))
			err := a.Permit(ctx)
			waits <- err
			return fmt.Errorf("%w: %w", ErrSuspended, err)
		}}
		p := f.start(handling(h), with(func(c *Config) { c.MaxBufferedBytes = 1 })).running(bedPartitions)
		fault := f.wires
		fault.BreakAt(func(key kmsg.Key) netcut.Cut {
			if key == kmsg.Produce {
				return netcut.CutRequest
			}
			return netcut.CutNothing
		})
		must(f.t, f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.Dialer(f.wires.Through)).
			ProduceSync(f.t.Context(), func() *kgo.Record { r := turn(sessionOn(1, 1), "one"); r.Topic = f.turns.Name; return r }()).FirstErr())
		<-time.After(10 * time.Second)
		select {
		case err := <-waits:
			f.t.Fatalf("Permit did not wait: %v", err)
		default:
		}
		p.stop()
		if err := <-waits; err == nil || !strings.Contains(err.Error(), ErrDraining.Error()) {
			f.t.Errorf("Permit gives %v, want ErrDraining", err)
		}
		fault.BreakAt(nil)
		<-p.ended
		p.close()
	})
}
