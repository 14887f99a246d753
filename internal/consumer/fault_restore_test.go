package consumer

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/internal/consumer/txn"
)

func TestWorker_HaltsWhenTheChangelogWasTruncated(t *testing.T) {
	t.Parallel()
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

// TestWorker_ReadsPastWhatWasCompactedAway has its story in several stream processors: when nothing is left of the end of a
// changelog, a restore that counts records waits for ever.
func TestWorker_ReadsPastWhatWasCompactedAway(t *testing.T) {
	t.Parallel()
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
				return nil, nil, false //nolint:nilnil // The broker answers.
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
	t.Parallel()
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
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start(calm).running(bedPartitions)
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
	t.Parallel()
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
	t.Parallel()
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

// TestWorker_KeepsAnIdleDiskTrusted leaves a worker idle for longer than its changelog keeps tombstones, kills it, and starts another
// with its disk.
func TestWorker_KeepsAnIdleDiskTrusted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		fs := vfs.NewMem()
		const retention = 2 * time.Hour
		slow := with(func(c *Config) {
			c.HeartbeatInterval, c.FetchMaxWait, c.ChangelogDeleteRetention = 2*time.Second, 5*time.Second, retention
		})
		first := f.start(onDisk(fs), slow).running(bedPartitions)
		f.load(80, 8)
		f.handled()
		<-time.After(retention + retention/2)
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
	t.Parallel()
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
	t.Parallel()
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
