package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/schemas"
)

// core is what holds on every broker.
var core = []struct {
	name string
	test func(b *bed)
}{
	{"every turn is handled once and in order", everyTurnOnce},
	{"lost answers and lost requests duplicate nothing", lostAnswers},
	{"partitions move between workers under load", movingPartitions},
	{"a killed worker is replaced", killedWorker},
	{"a restarted worker goes on from its disk", restartFromDisk},
	{"an empty disk is filled from the changelog", restoreToEmptyDisk},
	{"what cannot be accepted is a dead letter", deadLetters},
	{"an odd record harms nobody", oddRecords},
	{"a slow turn holds up nobody else", slowTurn},
	{"a session is never run twice at a time", sessionsAreSerial},
	{"a cancel does not queue", cancelOvertakes},
	{"a full partition is paused and resumed", pausedAtBounds},
	{"a paused partition that is lost and regained goes on", pausedLostRegained},
	{"a drain ends what runs and marks its commit clean", drainMarksClean},
	{"a drain over its budget suspends the turn", drainOverBudget},
	{"a fault of one partition halts it alone", haltedAlone},
	{"unfinished turns come before records", resumedFirst},
}

func (p *process) end() {
	p.t.Helper()
	p.stop()
	<-p.ended
	if p.err != nil {
		p.t.Fatalf("drain: %v", p.err)
	}
}

func everyTurnOnce(b *bed) {
	p := b.start().running(bedPartitions)
	b.load(200, 20)
	b.handled()
	b.exactlyOnce(20)
	p.end()
	p.stateIsTheChangelog()
}

// lostAnswers breaks connections at the requests of a cycle, before and after the broker has acted.
func lostAnswers(b *bed) {
	p := b.start(with(func(c *Config) { c.Txn.Timeout = 5 * time.Second })).running(bedPartitions)
	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	left, cuts := 25, 0
	b.wires.breakAt(func(key kmsg.Key) damage {
		if key != kmsg.EndTxn && key != kmsg.TxnOffsetCommit && key != kmsg.Produce {
			return cutNothing
		}
		mu.Lock()
		defer mu.Unlock()
		if left == 0 || rnd.IntN(6) > 0 {
			return cutNothing
		}
		left--
		cuts++
		return damage(1 + rnd.IntN(2))
	})
	for range 40 {
		b.load(20, 10)
	}
	b.handled()
	b.wires.breakAt(nil)
	b.exactlyOnce(10)
	p.end()
	p.stateIsTheChangelog()
	if cuts < 10 {
		b.t.Errorf("only %d connections were cut", cuts)
	}
}

func movingPartitions(b *bed) {
	work := func() *echo {
		return &echo{on: func(ctx context.Context, a *Assignment, _ *Record) error {
			if err := a.Permit(ctx); err != nil {
				return fmt.Errorf("%w: %w", ErrSuspended, err)
			}
			select {
			case <-time.After(3 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
			}
		}}
	}
	first := b.start(handling(work())).running(bedPartitions)
	b.load(200, 16)
	second := b.start(handling(work()))
	b.load(200, 16)
	first.running(2)
	second.running(2)
	b.load(200, 16)
	first.end()
	second.running(bedPartitions)
	b.load(100, 16)
	third := b.start(handling(work()))
	second.running(2)
	third.running(2)
	b.load(100, 16)
	b.handled()
	b.exactlyOnce(16)
	second.end()
	third.running(bedPartitions)
	third.end()
	third.stateIsTheChangelog()
}

func killedWorker(b *bed) {
	first := b.start(with(func(c *Config) { c.SessionTimeout = 2 * time.Second; c.Txn.Timeout = 3 * time.Second })).running(bedPartitions)
	b.load(100, 10)
	b.eventually("some turns are handled", func() bool { return len(first.handler.runs()) > 50 })
	first.kill()
	b.load(100, 10)
	second := b.start().running(bedPartitions)
	for _, a := range second.handler.assignments() {
		if a.Clean {
			b.t.Errorf("partition %d was left clean by a worker that was killed", a.Partition)
		}
	}
	b.handled()
	b.exactlyOnce(10)
	second.end()
	second.stateIsTheChangelog()
}

func restartFromDisk(b *bed) {
	fs := vfs.NewMem()
	first := b.start(onDisk(fs)).running(bedPartitions)
	b.load(100, 10)
	b.handled()
	first.drain()
	second := b.start(onDisk(fs)).running(bedPartitions)
	for id, n := range second.restored() {
		if n != 0 {
			b.t.Errorf("partition %d read %d records though its disk had them", id, n)
		}
	}
	for _, a := range second.handler.assignments() {
		if !a.Clean {
			b.t.Errorf("partition %d was drained, and is not clean", a.Partition)
		}
	}
	b.load(100, 10)
	b.handled()
	b.exactlyOnce(10)
	second.end()
	second.stateIsTheChangelog()
}

// restored is how many changelog records each partition has read.
func (p *process) restored() map[int32]int64 {
	out := map[int32]int64{}
	for _, q := range p.worker.all() {
		out[q.id] = q.restore.records.Load()
	}
	return out
}

func restoreToEmptyDisk(b *bed) {
	first := b.start(with(func(c *Config) { c.Txn.Timeout = 5 * time.Second })).running(bedPartitions)
	aborts := 0
	b.wires.breakAt(func(key kmsg.Key) damage { // Aborted records lie in the changelog too, last of all.
		if key == kmsg.TxnOffsetCommit && aborts < 6 {
			aborts++
			return cutRequest
		}
		return cutNothing
	})
	for range 10 {
		b.load(30, 10)
	}
	b.handled()
	first.drain()
	second := b.start(with(func(c *Config) { c.RestoreFetchBytes = 1 << 10 })).running(bedPartitions)
	total := int64(0)
	for _, n := range second.restored() {
		total += n
	}
	if total < 300 {
		b.t.Errorf("only %d records were restored", total)
	}
	b.load(50, 10)
	b.handled()
	b.exactlyOnce(10)
	second.end()
	second.stateIsTheChangelog()
}

// letter is what a dead letter says.
type letter struct {
	Reason, Key, Value, Position string
	Kept                         []string
}

func (b *bed) deadLetters() []letter {
	var out []letter
	for _, r := range b.read(b.letters.Name) {
		l := letter{Key: string(r.Key), Value: string(r.Value)}
		if r.Key == nil {
			l.Key = "<nil>"
		}
		if r.Value == nil {
			l.Value = "<nil>"
		}
		own := map[string]string{}
		for _, h := range r.Headers {
			if strings.HasPrefix(h.Key, "lathe_") {
				own[h.Key] = string(h.Value)
			} else {
				l.Kept = append(l.Kept, h.Key+"="+string(h.Value))
			}
		}
		l.Reason = own["lathe_reason"]
		l.Position = own["lathe_topic"] + "/" + own["lathe_partition"] + "/" + own["lathe_offset"]
		if own["lathe_at"] == "" || own["lathe_detail"] == "" {
			b.t.Errorf("dead letter %s has no time or no detail", l.Position)
		}
		out = append(out, l)
	}
	return out
}

func deadLetters(b *bed) {
	s := sessionOn(0, 1)
	value := string(turn(s, "t").Value)
	elsewhere := sessionOn(1, 1)
	foreign := string(turn(elsewhere, "t").Value)
	records := []struct {
		rec    *kgo.Record
		letter letter
	}{
		{&kgo.Record{Key: []byte(s)}, letter{Reason: "tombstone", Key: s, Value: "<nil>"}},
		{&kgo.Record{Value: []byte(value)}, letter{Reason: "key_mismatch", Key: "<nil>", Value: value}},
		{&kgo.Record{Key: []byte("another"), Value: []byte(value)}, letter{Reason: "key_mismatch", Key: "another", Value: value}},
		{&kgo.Record{Key: []byte(elsewhere), Value: []byte(foreign)}, letter{Reason: "partition_mismatch", Key: elsewhere, Value: foreign}},
		{&kgo.Record{Key: []byte(s), Value: []byte("{")}, letter{Reason: "undecodable", Key: s, Value: "{"}},
		{&kgo.Record{Key: []byte(s), Value: []byte{}}, letter{Reason: "undecodable", Key: s, Value: ""}},
		{&kgo.Record{Key: []byte{}, Value: []byte("\x01\x02")}, letter{Reason: "undecodable", Key: "", Value: "\x01\x02"}},
		{
			&kgo.Record{Key: []byte(s), Value: []byte("?"), Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: ""}}},
			letter{Reason: "undecodable", Key: s, Value: "?", Kept: []string{"a=1", "a=2", "="}},
		},
		{turn(s, "conflicting"), letter{Reason: "conflict", Key: s, Value: string(turn(s, "conflicting").Value)}},
	}
	var want []letter
	for i := range records {
		r := &records[i]
		r.rec.Partition = 0
		r.letter.Position = fmt.Sprintf("%s/0/%d", b.turns.Name, i)
		want = append(want, r.letter)
		b.produce(r.rec)
	}
	b.produce(turn(s, "good"))
	lost := atomic.Int32{}
	b.wires.breakAt(func(key kmsg.Key) damage { // The first answer to an EndTxn is lost: letter and offset are decided together.
		if key == kmsg.EndTxn && lost.Add(1) == 3 {
			return cutAnswer
		}
		return cutNothing
	})
	p := b.start(handling(&echo{on: func(_ context.Context, _ *Assignment, rec *Record) error {
		if rec.Event.TurnID == "conflicting" {
			return schemas.Errorf(schemas.CodeConflict, "another payload came under this id")
		}
		return nil
	}}))
	b.handled()
	if diff := cmp.Diff(want, b.byOffset(b.deadLetters())); diff != "" {
		b.t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	var got []string
	for _, values := range b.outputs() {
		got = append(got, values...)
	}
	for _, part := range []string{"good 1", "rejected conflicting conflict", "rejected t key_mismatch"} {
		if !contains(got, part) {
			b.t.Errorf("outputs %q lack %q", got, part)
		}
	}
	p.end()
}

// byOffset sorts dead letters by where they came from: those of different keys may lie on different partitions.
func (*bed) byOffset(letters []letter) []letter {
	out := make([]letter, len(letters))
	for _, l := range letters {
		var i int
		if _, err := fmt.Sscanf(l.Position[strings.LastIndex(l.Position, "/")+1:], "%d", &i); err == nil && i < len(out) {
			out[i] = l
		}
	}
	return out
}

// oddRecords sends what is too large, and random bytes.
func oddRecords(b *bed) {
	s := sessionOn(2, 1)
	big := turn(s, "big")
	big.Value = append(big.Value, make([]byte, 2<<20)...)
	headers := turn(s, "headers")
	headers.Value = []byte("?")
	headers.Headers = []kgo.RecordHeader{{Key: "large", Value: make([]byte, 1<<20)}}
	b.produce(big, headers)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		junk := make([]byte, rnd.IntN(300))
		for i := range junk {
			junk[i] = byte(rnd.IntN(256))
		}
		b.produce(&kgo.Record{Key: []byte(s), Value: junk, Partition: 2})
	}
	b.produce(turn(s, "good"))
	p := b.start()
	b.handled()
	letters := b.read(b.letters.Name)
	if len(letters) != 52 {
		b.t.Fatalf("%d dead letters, want 52", len(letters))
	}
	cutOnes := map[string]int{}
	for _, r := range letters {
		own := map[string]string{}
		for _, h := range r.Headers {
			own[h.Key] = string(h.Value)
		}
		if own[headerCut] != "" {
			cutOnes[own[headerReason]+" "+own[headerValueBytes]] = len(r.Value)
			if len(own[headerValueSHA256]) != 64 {
				b.t.Errorf("hash %q", own[headerValueSHA256])
			}
		}
	}
	want := map[string]int{fmt.Sprintf("too_large %d", len(big.Value)): cutValue, "undecodable 1": 1}
	if diff := cmp.Diff(want, cutOnes); diff != "" {
		b.t.Errorf("dead letters that were cut (-want +got):\n%s", diff)
	}
	if got := b.outputs()[s]; !contains(got, "good 1") {
		b.t.Errorf("outputs %q", got)
	}
	p.end()
}

// slowTurn keeps one turn running while the others of its partition go on, moves the partition, and sees that nothing is run
// twice for it.
func slowTurn(b *bed) {
	release := make(chan struct{})
	slow := sessionOn(1, 1)
	gate := func() *echo {
		return &echo{on: func(ctx context.Context, _ *Assignment, rec *Record) error {
			if rec.Event.TurnID != "slow" {
				return nil
			}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
			}
		}}
	}
	budget := with(func(c *Config) { c.DrainBudget = 50 * time.Millisecond })
	first := b.start(handling(gate()), budget).running(bedPartitions)
	b.produce(turn(slow, "slow"), turn(slow, "after"))
	for i := range 100 {
		b.produce(turn(sessionOn(1, 100+i), fmt.Sprintf("quick-%d", i)))
	}
	b.eventually("the quick ones are done", func() bool { return len(b.read(b.output.Name)) == 100 })
	if at := b.committed()[1].At; at != 0 {
		b.t.Errorf("offset %d is committed though the slow turn at 0 is not done", at)
	}
	first.drain()
	second := b.start(handling(gate()), budget).running(bedPartitions)
	b.eventually("the slow one runs again", func() bool { return contains(second.handler.runs(), "slow") })
	close(release)
	b.handled()
	if n := len(b.read(b.output.Name)); n != 102 {
		b.t.Errorf("%d outputs, want 102", n)
	}
	if contains(second.handler.runs(), "quick") {
		b.t.Error("a turn that was done beyond the committed offset ran again")
	}
	if diff := cmp.Diff([]string{"slow 1", "after 2"}, b.outputs()[slow]); diff != "" {
		b.t.Errorf("session (-want +got):\n%s", diff)
	}
	second.end()
}

func sessionsAreSerial(b *bed) {
	var running sync.Map
	var together, most atomic.Int32
	p := b.start(handling(&echo{on: func(_ context.Context, _ *Assignment, rec *Record) error {
		if _, busy := running.LoadOrStore(rec.Event.SessionID, true); busy {
			return errors.New("two turns of a session run at once")
		}
		now := together.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		<-time.After(5 * time.Millisecond)
		together.Add(-1)
		running.Delete(rec.Event.SessionID)
		return nil
	}})).running(bedPartitions)
	b.load(160, 16)
	b.handled()
	b.exactlyOnce(16)
	if most.Load() < 8 {
		b.t.Errorf("at most %d sessions ran together, of 16", most.Load())
	}
	p.end()
}

func cancelOvertakes(b *bed) {
	release := make(chan struct{})
	p := b.start(handling(&echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
		}
	}})).running(bedPartitions)
	s := sessionOn(3, 1)
	b.produce(turn(s, "one"), turn(s, "two"), cancelOf(s, "two"))
	b.eventually("the cancel is there", func() bool {
		p.handler.mu.Lock()
		defer p.handler.mu.Unlock()
		return contains(p.handler.cancelled, "two") && len(p.handler.ran) > 0
	})
	if got := p.handler.runs(); len(got) != 1 {
		b.t.Errorf("turns %q ran, want the first only", got)
	}
	close(release)
	b.handled()
	p.end()
}

func pausedAtBounds(b *bed) {
	release := make(chan struct{})
	p := b.start(handling(&echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
		}
	}}), with(func(c *Config) { c.Window, c.MaxInFlight, c.MaxBufferedBytes = 8, 16, 1 })).running(bedPartitions)
	for range 20 {
		b.bulk(50)
	}
	paused := func(want int) func() bool {
		return func() bool {
			n := 0
			for _, s := range p.worker.Status().Partitions {
				if s.Paused {
					n++
				}
			}
			return n == want
		}
	}
	b.eventually("all partitions are paused", paused(bedPartitions))
	for _, s := range p.worker.Status().Partitions {
		if s.InFlight > 8 || s.Backlog == 0 {
			b.t.Errorf("partition %d has %d turns in flight and %d waiting", s.Partition, s.InFlight, s.Backlog)
		}
	}
	if n := len(p.handler.runs()); n > 16 {
		b.t.Errorf("%d turns run, the limit is 16", n)
	}
	close(release)
	b.handled()
	b.eventually("no partition is paused", paused(0))
	b.exactlyOnce(64)
	p.end()
}

// bulk produces turns that are some KiB each.
func (b *bed) bulk(n int) {
	records := make([]*kgo.Record, n)
	for i := range records {
		r := turn(fmt.Sprintf("session-%d", b.sent%64), fmt.Sprintf("turn-%06d", b.sent))
		r.Headers = []kgo.RecordHeader{{Key: "ballast", Value: make([]byte, 4<<10)}}
		records[i] = r
		b.sent++
	}
	b.produce(records...)
}

// pausedLostRegained has its story in franz-go's issue 1272: a partition that was paused as it was revoked stayed paused when it
// came back, and nobody noticed but its consumers.
func pausedLostRegained(b *bed) {
	var open atomic.Bool
	gate := func() *echo {
		return &echo{on: func(ctx context.Context, a *Assignment, _ *Record) error {
			for !open.Load() {
				if err := a.Permit(ctx); err != nil {
					return fmt.Errorf("%w: %w", ErrSuspended, err)
				}
				if sleep(ctx, 5*time.Millisecond) != nil {
					return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
				}
			}
			return nil
		}}
	}
	small := with(func(c *Config) { c.Window, c.MaxBufferedBytes = 4, 1 })
	first := b.start(handling(gate()), small).running(bedPartitions)
	for range 20 {
		b.bulk(50)
	}
	b.eventually("all partitions are paused", func() bool {
		for _, s := range first.worker.Status().Partitions {
			if !s.Paused {
				return false
			}
		}
		return true
	})
	second := b.start(handling(gate()), small).running(2)
	first.running(2)
	second.drain()
	first.running(bedPartitions)
	open.Store(true)
	b.handled()
	b.exactlyOnce(64)
	first.end()
}

func drainMarksClean(b *bed) {
	asked := make(chan error, 1)
	started := make(chan struct{})
	p := b.start(handling(&echo{on: func(ctx context.Context, a *Assignment, rec *Record) error {
		if rec.Event.TurnID != "last" {
			return nil
		}
		close(started)
		err := a.Permit(ctx)
		for err == nil {
			err = errors.Join(a.Permit(ctx), sleep(ctx, time.Millisecond))
		}
		asked <- err
		return nil
	}})).running(bedPartitions)
	s := sessionOn(0, 1)
	b.produce(turn(s, "last"), turn(s, "never"))
	<-started
	p.end()
	if err := <-asked; !errors.Is(err, ErrDraining) {
		b.t.Errorf("Permit while draining: %v", err)
	}
	if got := p.handler.runs(); contains(got, "never") {
		b.t.Error("a turn began while the worker drained")
	}
	if diff := cmp.Diff([]string{"last 1"}, b.outputs()[s]); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
	committed := b.committed()
	for id := range int32(bedPartitions) {
		m, ok := txn.ParseMetadata(committed[id].Metadata)
		if !ok || !m.Clean {
			b.t.Errorf("partition %d has metadata %q, want a clean one", id, committed[id].Metadata)
		}
	}
	if at := committed[0].At; at != 1 {
		b.t.Errorf("offset %d is committed, want 1", at)
	}
	second := b.start().running(bedPartitions)
	for id, o := range b.committed() { // Before its first record is handled a partition is no longer clean.
		if m, ok := txn.ParseMetadata(o.Metadata); ok && m.Clean && len(second.handler.runs()) > 0 && id == 0 {
			b.t.Errorf("partition %d is clean while turns run", id)
		}
	}
	b.handled()
	second.end()
}

func drainOverBudget(b *bed) {
	cause := make(chan error, 1)
	p := b.start(handling(&echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return fmt.Errorf("%w: %w", ErrSuspended, context.Cause(ctx))
	}}), with(func(c *Config) { c.DrainBudget = 100 * time.Millisecond })).running(bedPartitions)
	s := sessionOn(0, 1)
	b.produce(turn(s, "endless"))
	b.eventually("the turn runs", func() bool { return len(p.handler.runs()) == 1 })
	p.end()
	if err := <-cause; !errors.Is(err, ErrDrainBudget) {
		b.t.Errorf("the turn was cancelled by %v", err)
	}
	second := b.start().running(bedPartitions)
	b.handled()
	if diff := cmp.Diff([]string{"endless 1"}, b.outputs()[s]); diff != "" {
		b.t.Errorf("outputs (-want +got):\n%s", diff)
	}
	second.end()
}

func haltedAlone(b *bed) {
	p := b.start(handling(&echo{on: func(_ context.Context, a *Assignment, _ *Record) error {
		if a.Partition == 1 {
			return errors.New("the disk is gone")
		}
		return nil
	}})).running(bedPartitions)
	b.produce(turn(sessionOn(1, 1), "bad"))
	for id := range int32(bedPartitions) {
		b.produce(turn(sessionOn(id, 2), fmt.Sprintf("good-%d", id)))
	}
	b.eventually("the others are handled", func() bool { return len(b.read(b.output.Name)) == 3 })
	if diff := cmp.Diff([]string{"running", "halted", "running", "running"}, sorted(p.status())); diff != "" {
		b.t.Errorf("states (-want +got):\n%s", diff)
	}
	if s := p.worker.Status(); s.Ready || !strings.Contains(s.ReadyReason, "the disk is gone") {
		b.t.Errorf("ready %t: %s", s.Ready, s.ReadyReason)
	}
	p.end()
}

func resumedFirst(b *bed) {
	s := sessionOn(2, 1)
	b.produce(turn(s, "from-log"))
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	e := &echo{on: func(_ context.Context, _ *Assignment, rec *Record) error {
		note(rec.Event.TurnID)
		return nil
	}}
	e.resume = func(a *Assignment) []Task {
		if a.Partition != 2 {
			return nil
		}
		return []Task{{LaneKey: s, Run: func(context.Context) error {
			<-time.After(20 * time.Millisecond)
			note("from-state")
			return nil
		}}}
	}
	p := b.start(handling(e))
	b.handled()
	p.end()
	if diff := cmp.Diff([]string{"from-state", "from-log"}, order); diff != "" {
		b.t.Errorf("order (-want +got):\n%s", diff)
	}
}
