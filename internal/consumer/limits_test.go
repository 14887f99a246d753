package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// A dead letter that its topic just takes is whole, one that is a byte larger is cut; the broker refuses none of them.
func TestWorker_CutsADeadLetterThatIsAByteTooLarge(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		const limit = 128 << 10
		f.lowerMax(f.letters.Name, limit)
		hour := time.Now().Truncate(time.Hour) // A time of which a header has as many digits for each letter.
		p := f.start(with(func(c *Config) { c.MaxTurnBytes, c.DeadLetters.MaxMessageBytes = 1000, limit }), func(s *setup) {
			s.deps.Now = func() time.Time { return hour }
		}).running(bedPartitions)
		sized := func(n int) *kgo.Record {
			r := turn(sessionOn(1, 1), "large")
			r.Topic, r.Value = f.turns.Name, noise(limit-3000)
			rec := newRecord(r)
			reason := p.worker.read(f.t.Context(), rec)
			r.Value = noise(len(r.Value) + n - batchOverhead - recordSize(rec.Key, rec.value, append(rec.Headers, p.worker.reasonHeaders(rec, reason)...)))
			return r
		}
		below, at, above := sized(limit-1), sized(limit), sized(limit+1)
		f.produce(below, at, above)
		f.handled()
		letters := f.byOffset(f.deadLetters())
		if len(letters) != 3 {
			f.t.Fatalf("%d dead letters, want 3", len(letters))
		}
		for i, want := range [][]byte{below.Value, at.Value, above.Value[:cutValue]} {
			if letters[i].Value != string(want) {
				f.t.Errorf("dead letter %d has %d bytes of the value, want %d", i, len(letters[i].Value), len(want))
			}
		}
		p.end()
	})
}

// What a batch decompresses to is bounded, whatever it is compressed with: its turns run as long as it has no more than the limit,
// and of one byte more a dead letter is made.
func TestWorker_TakesABatchAtTheLimitAndSkipsOneAbove(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	for name, codec := range map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, 1, 2) // In no bubble: a finalizer closes zstd's decoders, and would do so from outside.
			p := f.start(with(func(c *Config) { c.MaxDecompressBytes = limit })).running(bedPartitions)
			s := sessionOn(1, 1)
			compressing := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(0))
			sized := func(id string, n int) *kgo.Record {
				r := turn(s, id)
				r.Topic, r.Headers = f.turns.Name, []kgo.RecordHeader{{Key: "ballast", Value: make([]byte, limit/2)}}
				r.Headers[0].Value = make([]byte, limit/2+n-encodedSize(r))
				return r
			}
			for _, r := range []*kgo.Record{sized("below", limit-1), sized("at", limit), sized("above", limit+1)} {
				must(t, compressing.ProduceSync(t.Context(), r).FirstErr()) // Each is a batch.
			}
			f.handled()
			if diff := cmp.Diff([]string{"below 1", "at 2"}, f.outputs()[s]); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			if letters := f.deadLetters(); len(letters) != 1 || letters[0].Reason != "too_large" {
				t.Errorf("dead letters %+v", letters)
			}
			p.end()
		})
	}
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

// At its bound, and not a byte before, each part of a partition's share holds back what would add to it.
func TestWorker_HoldsBackAtTheBoundsOfItsBuffer(t *testing.T) {
	t.Parallel()
	const share = 1 << 20
	for _, tc := range []struct {
		name  string
		bound int64
		// fill fills a part of the share of partition 1 and reports whether that holds back what would come next.
		fill func(f *fake, share func(*setup), bytes int64) bool
	}{
		{"while records wait none is fetched", share / 4, (*fake).fillBacklog},
		{"while turns hold records none begins", share / 4 * 3, (*fake).fillWithTurns},
		{"while effects wait no turn goes on", share / 4 * 3, (*fake).fillWithEffects},
	} {
		for bytes := tc.bound - 1; bytes <= tc.bound+1; bytes++ {
			t.Run(fmt.Sprintf("%s, %d of %d bytes", tc.name, bytes, tc.bound), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(f *fake) {
					held := tc.fill(f, with(func(c *Config) { c.MaxBufferedBytes = bedPartitions * share }), bytes)
					if want := bytes >= tc.bound; held != want {
						f.t.Errorf("held back is %t, want %t", held, want)
					}
				})
			})
		}
	}
}

// settled is how long a worker is given to do all that it would do now.
const settled = 2 * time.Second

// weighing makes a turn whose record counts as so many bytes.
func weighing(session, id string, bytes int64) *kgo.Record {
	r := turn(session, id)
	r.Headers = []kgo.RecordHeader{{Key: "ballast"}}
	r.Headers[0].Value = make([]byte, bytes-recordBytes(r))
	return r
}

// untilClosed makes turns that end when a channel is closed.
func untilClosed(release <-chan struct{}) *echo {
	return &echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
		}
	}}
}

// fillBacklog has a record of so many bytes wait for its turn. The window has a place for one turn, and the dispatcher has the next
// in its hand.
func (f *fake) fillBacklog(share func(*setup), bytes int64) bool {
	release := make(chan struct{})
	p := f.start(calm, handling(untilClosed(release)), share, with(func(c *Config) { c.Window = 1 })).running(bedPartitions)
	s := sessionOn(1, 1)
	f.produce(turn(s, "runs"), turn(s, "next"))
	<-time.After(settled)
	f.produce(weighing(s, "waits", bytes))
	<-time.After(settled)
	part := p.worker.partition(1)
	part.mu.Lock()
	waiting := part.mu.bytes
	part.mu.Unlock()
	if waiting != bytes {
		f.t.Errorf("%d bytes wait, want %d", waiting, bytes)
	}
	paused := part.paused.Load()
	close(release)
	f.handled()
	p.end()
	return paused
}

// fillWithTurns has a turn run whose record has so many bytes, and sends another.
func (f *fake) fillWithTurns(share func(*setup), bytes int64) bool {
	release := make(chan struct{})
	p := f.start(calm, handling(untilClosed(release)), share).running(bedPartitions)
	f.produce(weighing(sessionOn(1, 1), "runs", bytes))
	<-time.After(settled)
	if held := p.worker.partition(1).held.Load(); held != bytes {
		f.t.Errorf("turns hold %d bytes, want %d", held, bytes)
	}
	f.produce(turn(sessionOn(1, 2), "next"))
	<-time.After(settled)
	began := len(p.handler.runs()) == 2
	close(release)
	f.handled()
	p.end()
	return !began
}

// fillWithEffects has a turn write so many bytes while no cycle begins, and then ask whether it may go on.
func (f *fake) fillWithEffects(share func(*setup), bytes int64) bool {
	var went atomic.Bool
	m := &mender{echo: &echo{}}
	m.on = func(ctx context.Context, a *Assignment, _ *Record) error {
		add := func(n int64) {
			must(f.t, a.State.Add(&statestore.Effect{Offset: statestore.NoOffset, Mutations: []statestore.Mutation{{
				Op: statestore.OpSet, Key: "large", Value: append([]byte{statestore.Format}, make([]byte, n-1)...),
			}}}))
		}
		add(1)
		one := a.State.PendingBytes()
		add(bytes - 2*one + 1)
		err := a.Permit(ctx)
		went.Store(err == nil)
		return err
	}
	hold := newHolding()
	p := f.start(calm, m.handles, hold.cycles, share).running(bedPartitions)
	f.produce(turn(sessionOn(1, 1), "one"))
	<-time.After(settled)
	if pending := p.worker.partition(1).store.PendingBytes(); pending != bytes && !went.Load() {
		f.t.Errorf("effects of %d bytes wait, want %d", pending, bytes)
	}
	goesOn := went.Load()
	hold.release()
	f.handled()
	p.end()
	return !goesOn
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
