package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/statestore"
)

// TestWorker_RestoresAnewWhenTheChangelogIsCutUnderIt: a log that is compacted or cut while it is read answers OFFSET_OUT_OF_RANGE.
// Once, the restore begins anew; twice, it is for a person.
func TestWorker_RestoresAnewWhenTheChangelogIsCutUnderIt(t *testing.T) {
	t.Parallel()
	for _, times := range []int{1, -1} {
		t.Run(fmt.Sprintf("%d times", times), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				first := f.start().running(bedPartitions)
				f.load(80, 8)
				f.handled()
				first.drain()
				said := newLogbook()
				met := f.cluster.Fault(kfake.Fault{
					Keys: []kmsg.Key{kmsg.Fetch}, Topic: f.changelog.Name, TopicID: f.changelog.ID, Partitions: []int32{1}, Err: kerr.OffsetOutOfRange, Count: times,
				})
				second := f.start(said.into)
				if times < 0 {
					f.eventually("partition 1 alone is halted", func() bool {
						return cmp.Equal(sorted(second.status()), []string{"running", "halted", "running", "running"})
					})
					<-time.After(10 * time.Second)
					if met.Hits() != 2 {
						f.t.Errorf("the changelog was asked %d times, want 2", met.Hits())
					}
					if reason := second.worker.Status().ReadyReason; !strings.Contains(reason, "out of range") {
						f.t.Errorf("ready: %q", reason)
					}
					second.end()
					return
				}
				second.running(bedPartitions)
				if how := said.restores()[1].attrs["how"].String(); how != readFromStart("the changelog was cut while it was read") {
					f.t.Errorf("partition 1: %s", how)
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

func TestWorker_HaltsWhenTheChangelogIsDeletedUnderIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		first := f.start().running(bedPartitions)
		f.load(40, 8)
		f.handled()
		first.drain()
		asked := f.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Topic: f.changelog.Name, TopicID: f.changelog.ID, Err: kerr.UnknownTopicOrPartition, Count: -1,
		})
		second := f.start()
		f.eventually("all partitions are halted", func() bool {
			return cmp.Equal(sorted(second.status()), []string{"halted", "halted", "halted", "halted"})
		})
		if reason := second.worker.Status().ReadyReason; !strings.Contains(reason, errUnknownLog.Error()) {
			f.t.Errorf("ready: %q", reason)
		}
		if n := asked.Hits(); n > 4*60 {
			f.t.Errorf("the brokers were asked %d times in half a minute", n)
		}
		second.end()
	})
}

// TestWorker_HaltsOnceAtAValueItCannotStore: what a newer release wrote is refused by the store, and asking for it again changes
// nothing.
func TestWorker_HaltsOnceAtAValueItCannotStore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		f.produce(&kgo.Record{Topic: f.changelog.Name, Partition: 1, Key: []byte("k"), Value: []byte{statestore.Format + 1, 'x'}})
		fetches := f.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Topic: f.changelog.Name, TopicID: f.changelog.ID, Partitions: []int32{1}, Observe: true, Count: -1,
		})
		p := f.start()
		f.eventually("partition 1 alone is halted", func() bool {
			return cmp.Equal(sorted(p.status()), []string{"running", "halted", "running", "running"})
		})
		<-time.After(10 * time.Second)
		if n := fetches.Hits(); n != 1 {
			f.t.Errorf("the changelog was asked %d times, want once", n)
		}
		p.end()
	})
}

// TestWorker_KeepsWhatItHasRestoredWhenPartitionsMove has its story in a stream processor whose every replica began again from the
// start whenever another joined, for ever. A restore that is broken off goes on where it was.
func TestWorker_KeepsWhatItHasRestoredWhenPartitionsMove(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		first := f.start().running(bedPartitions)
		for range 20 {
			f.load(20, 8)
			f.handled()
		}
		first.drain()
		// Beyond the middle of partition 1 the brokers answer nothing for now.
		ends := f.stableEnds(f.changelog.Name)
		var open atomic.Bool
		f.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Topic: f.changelog.Name, TopicID: f.changelog.ID, Partitions: []int32{1}, Err: kerr.NotLeaderForPartition, Count: -1,
			When: func(req kmsg.Request) bool {
				return !open.Load() && req.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset > ends[1]/2
			},
		})
		said := newLogbook()
		second := f.start(said.into, with(func(c *Config) { c.RestoreFetchBytes = 512 }))
		f.eventually("partition 1 is half restored", func() bool {
			p := second.worker.partition(1)
			return p != nil && p.restore.position.Load() > ends[1]/2
		})
		half := second.worker.partition(1)
		s := half.status()
		if s.Restore == nil || s.Restore.Percent < 40 || s.Restore.Percent > 99 || s.Restore.Records == 0 || s.Restore.Bytes == 0 || s.Restore.Target != ends[1] ||
			s.Restore.How != readFromStart("there is no local state") {
			f.t.Errorf("status %+v", s.Restore)
		}
		<-time.After(2 * progressInterval)
		if lines := said.with("partition is being restored"); len(lines) == 0 || lines[0].attrs["percent"].Float64() < 40 {
			f.t.Errorf("%d lines about the restore: %v", len(lines), lines)
		}
		second.worker.askRejoin()
		f.eventually("partition 1 is assigned again", func() bool {
			p := second.worker.partition(1)
			return p != nil && p != half
		})
		open.Store(true)
		second.running(bedPartitions)
		l := said.restores()[1]
		if from := l.attrs["from"].Int64(); l.attrs["how"].String() != fromLocal || from <= ends[1]/2 {
			f.t.Errorf("it %s from %d of %d", l.attrs["how"], from, ends[1])
		}
		second.end()
		second.stateIsTheChangelog()
	})
}

// TestWorker_KilledRightAfterARestoreDoesNotReadItAgain: what a partition's whole changelog cost to read is on the disk before it runs.
func TestWorker_KilledRightAfterARestoreDoesNotReadItAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		first := f.start().running(bedPartitions)
		f.load(200, 16)
		f.handled()
		first.drain()
		fs, said := vfs.NewCrashableMem(), newLogbook()
		second := f.start(onDisk(fs)).running(bedPartitions)
		disk := fs.CrashClone(vfs.CrashCloneCfg{}) // What was not synced is lost.
		read := second.restored()
		second.kill()
		third := f.start(onDisk(disk), said.into).running(bedPartitions)
		for id, l := range said.restores() {
			if how, n := l.attrs["how"].String(), l.attrs["records"].Int64(); how != fromLocal || n > read[id]/10 {
				f.t.Errorf("partition %d: %s, %d of %d records were read again", id, how, n, read[id])
			}
		}
		third.end()
		third.stateIsTheChangelog()
	})
}

// TestWorker_RunsOtherPartitionsWhileOneCannotBeRestored has one place for restores, and a partition whose changelog ends in an open
// transaction: the others are restored, and complete turns.
func TestWorker_RunsOtherPartitionsWhileOneCannotBeRestored(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		first := f.start().running(bedPartitions)
		f.load(80, 8)
		f.handled()
		first.drain()
		older := f.client(kgo.TransactionalID("older"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(time.Minute))
		must(f.t, older.BeginTransaction())
		must(f.t, older.ProduceSync(f.t.Context(), &kgo.Record{Topic: f.changelog.Name, Partition: 0, Key: []byte("late"), Value: []byte{1, 7}}).FirstErr())
		said := newLogbook()
		second := f.start(said.into, with(func(c *Config) { c.RestoreParallel = 1 }))
		f.eventually("the others run", func() bool {
			return cmp.Equal(sorted(second.status()), []string{"restoring", "running", "running", "running"})
		})
		before := f.committed()
		for id := range int32(bedPartitions) {
			f.produce(turn(sessionOn(id, 7), fmt.Sprint("meanwhile-", id)))
		}
		f.eventually("the others complete turns", func() bool {
			now := f.committed()
			return now[1].At > before[1].At && now[2].At > before[2].At && now[3].At > before[3].At
		})
		if s := second.worker.partition(0).status(); s.Restore == nil || s.Restore.Waiting == "" || s.State != "restoring" {
			f.t.Errorf("partition 0: %+v", s)
		}
		must(f.t, older.EndTransaction(f.t.Context(), kgo.TryCommit))
		second.running(bedPartitions)
		f.handled()
		second.end()
		second.stateIsTheChangelog()
	})
}

// TestWorker_RestoresACompactedChangelog reads a log from which most is gone, beginning behind its first offset: what was deleted
// stays deleted.
func TestWorker_RestoresACompactedChangelog(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		first := f.start(handling(&echo{on: forgetOften})).running(bedPartitions)
		for range 10 {
			f.load(40, 8)
			f.handled()
		}
		first.drain()
		want := f.folded()
		before := len(f.read(f.changelog.Name))
		f.cluster.Compact()
		if after := len(f.read(f.changelog.Name)); after >= before {
			f.t.Fatalf("compaction left %d of %d records", after, before)
		}
		second := f.start(handling(&echo{on: forgetOften})).running(bedPartitions)
		got := second.state()
		for id := range want {
			delete(want[id], positionKey) // The next worker has written its own by now.
			delete(got[id], positionKey)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			f.t.Errorf("state (-changelog before compaction +restored):\n%s", diff)
		}
		second.end()
	})
}

// state is what a process has on its disk.
func (p *process) state() map[int32]map[string]string {
	out := map[int32]map[string]string{}
	for id := range int32(bedPartitions) {
		out[id] = map[string]string{}
		must(p.t, p.store.Scan(id, "", func(key string, value []byte) error {
			out[id][key] = string(value)
			return nil
		}))
	}
	return out
}

// TestWorker_RestoresFarMoreThanItsMemory restores 128 MB that compresses to next to nothing, so that one fetch brings all
// of it. It is not run beside other tests, since it looks at the heap.
func TestWorker_RestoresFarMoreThanItsMemory(t *testing.T) { //nolint:paralleltest // As said above.
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 2)
		const value, count = 512 << 10, 256
		producer := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(0))
		zeros := bytes.Repeat([]byte{statestore.Format}, value)
		for i := range count {
			producer.Produce(t.Context(), &kgo.Record{Topic: f.changelog.Name, Partition: int32(i % bedPartitions), Key: fmt.Append(nil, "k", i%40), Value: zeros}, nil)
			if i%64 == 0 {
				must(t, producer.Flush(t.Context()))
			}
		}
		must(t, producer.Flush(t.Context()))
		defer debug.SetGCPercent(debug.SetGCPercent(10))
		runtime.GC()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		p := f.start(func(s *setup) {
			s.fs, s.dir = vfs.Default, path.Join(t.TempDir(), "state")
			s.store = statestore.Config{CacheBytes: 1 << 20, MemTableBytes: 4 << 20} // Without cgo they are on the heap.
		})
		peak := uint64(0)
		for done := false; !done; {
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
			done = cmp.Equal(sorted(p.status()), []string{"running", "running", "running", "running"})
			<-time.After(5 * time.Millisecond)
		}
		var restored int64
		for _, q := range p.worker.all() {
			restored += q.restore.bytes.Load()
		}
		if restored < value*count {
			t.Errorf("%d bytes were restored, want %d", restored, value*count)
		}
		if grown := int64(peak) - int64(before.HeapAlloc); grown > 60<<20 {
			t.Errorf("the heap grew by %d MB", grown>>20)
		}
		p.end()
	})
}

// TestWorker_EndsWhenItsDiskIsDamagedAndTheNextStartRestores flips bytes in the tables of a worker. It ends when it reads them,
// and decides nothing from them; the next start sets the files aside and reads the changelog.
func TestWorker_EndsWhenItsDiskIsDamagedAndTheNextStartRestores(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		fs := vfs.NewMem()
		first := f.start(onDisk(fs)).running(bedPartitions)
		f.load(200, 8)
		f.handled()
		first.drain()
		store, err := statestore.Open(statestore.Config{Dir: "state", FS: fs}) // This writes what is in the log to a table.
		must(f.t, err)
		must(f.t, store.Close())
		damageTables(f, fs)
		second := f.start(onDisk(fs))
		f.load(200, 8)
		<-second.ended
		if !errors.Is(second.err, statestore.ErrDamaged) {
			f.t.Errorf("it ended with %v", second.err)
		}
		second.closed = true
		second.store.Close() // The damage may be met again.
		said := newLogbook()
		third := f.start(onDisk(fs), said.into).running(bedPartitions)
		for id, l := range said.restores() {
			if how := l.attrs["how"].String(); how != readFromStart("there is no local state") {
				f.t.Errorf("partition %d: %s", id, how)
			}
		}
		f.handled()
		f.exactlyOnce(8)
		third.end()
		third.stateIsTheChangelog()
	})
}

// damageTables flips bytes all over the data of every table.
func damageTables(f *fake, fs *vfs.MemFS) {
	f.t.Helper()
	names, err := fs.List("state")
	must(f.t, err)
	flipped := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		data, err := fs.UnsafeGetFileDataBuffer(path.Join("state", name))
		must(f.t, err)
		for i := 10; i < len(data)/2; i += 512 {
			data[i] ^= 0xff
			flipped++
		}
	}
	if flipped == 0 {
		f.t.Fatal("there is no table to damage")
	}
}

// TestWorker_EndsWhenItsDiskIsFull fills the disk under a worker: it ends with the reason and in time, and loses nothing.
func TestWorker_EndsWhenItsDiskIsFull(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		mem := vfs.NewMem()
		var full atomic.Bool
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			writes := []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData}
			if full.Load() && slices.Contains(writes, op.Kind) {
				return syscall.ENOSPC
			}
			return nil
		}))
		first := f.start(onDisk(fs)).running(bedPartitions)
		f.load(80, 8)
		f.handled()
		full.Store(true)
		began := time.Now()
		f.load(80, 8)
		<-first.ended
		if took := time.Since(began); !errors.Is(first.err, statestore.ErrDisk) || !errors.Is(first.err, syscall.ENOSPC) || took > time.Minute {
			f.t.Errorf("after %s it ended with %v", took, first.err)
		}
		if live := first.worker.Status().LiveReason; !strings.Contains(live, "no space left") {
			f.t.Errorf("live: %q", live)
		}
		full.Store(false) // Its process would be gone: what waits for the disk ends here.
		<-time.After(time.Second)
		first.close()
		second := f.start(onDisk(fs)).running(bedPartitions)
		f.handled()
		f.exactlyOnce(8)
		second.end()
		second.stateIsTheChangelog()
	})
}
