package consumer

import (
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestWorker_DoesNotTakeATruncatedPartitionForAnEmptyOne deletes the records of one partition of the changelog up to its end. A
// restore then finds nothing at all between the log's start and its end, which once passed for a state that was whole: turns that
// were done ran again.
func TestWorker_DoesNotTakeATruncatedPartitionForAnEmptyOne(t *testing.T) {
	t.Parallel()
	// Nothing is compacted here, so the start of the log stays where it is, as it always does on Apache Kafka.
	asKafka := func(s *setup) { s.deps.Hooks.LogStartMoves = false }
	inBubble(t, func(f *fake) {
		kept, other := vfs.NewMem(), vfs.NewMem()
		p := f.start(asKafka, onDisk(kept)).running(bedPartitions)
		f.load(40, 8)
		f.handled()
		p.drain()
		f.truncate(1)

		for range 2 { // What the first restore left behind must not be trusted by the second.
			p = f.start(asKafka, onDisk(other))
			f.eventually("one partition is halted and the others run", func() bool {
				return cmp.Equal(sorted(p.status()), []string{"running", "halted", "running", "running"})
			})
			if reason := p.worker.Status().ReadyReason; !strings.Contains(reason, "truncated") || !strings.Contains(reason, "it began at 0") {
				f.t.Errorf("ready: %q", reason)
			}
			p.kill()
		}

		p = f.start(asKafka, onDisk(kept)).running(bedPartitions) // It has all of the state.
		f.load(8, 8)
		f.handled()
		p.drain()

		p = f.start(asKafka) // Still nobody else can have it.
		f.eventually("one partition is halted", func() bool { return slices.Contains(sorted(p.status()), "halted") })
		p.kill()

		f.resetOffset(1) // A person accepts the loss, for good.
		for range 2 {
			p = f.start(asKafka).running(bedPartitions)
			f.load(8, 8)
			f.handled()
			p.drain()
		}
	})
}

// truncate deletes all records of one partition of the changelog.
func (f *fake) truncate(partition int32) {
	f.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(f.changelog.Name, partition, -1, -1)
	done, err := f.admin.DeleteRecords(f.t.Context(), offsets)
	must(f.t, err)
	must(f.t, done.Error())
}

// resetOffset commits the offset of a partition as it is, as the tools of Kafka do: without metadata.
func (f *fake) resetOffset(partition int32) {
	f.t.Helper()
	was, err := f.admin.FetchOffsets(f.t.Context(), f.name)
	must(f.t, err)
	at, _ := was.Lookup(f.turns.Name, partition)
	var offsets kadm.Offsets
	offsets.AddOffset(f.turns.Name, partition, at.At, -1)
	f.eventually("the offset is set", func() bool {
		done, err := f.admin.CommitOffsets(f.t.Context(), f.name, offsets)
		return err == nil && done.Ok()
	})
}

// TestWorker_HaltsWhenItsChangelogIsMadeAnewUnderIt has only the first of its producers write before: the others would take the
// new topic for the one it knows. After a restart, too, nothing is taken for whole.
func TestWorker_HaltsWhenItsChangelogIsMadeAnewUnderIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		fs := vfs.NewMem()
		p := f.start(onDisk(fs)).running(bedPartitions)
		f.load(40, 8)
		f.handled()
		_, err := f.admin.DeleteTopic(f.t.Context(), f.changelog.Name)
		must(f.t, err)
		old := f.changelog
		f.changelog = f.topic(f.changelog.Name, nil)
		before := f.committed()
		f.load(40, 8)
		halted := []string{"halted", "halted", "halted", "halted"}
		f.eventually("all partitions are halted", func() bool { return cmp.Equal(sorted(p.status()), halted) })
		if diff := cmp.Diff(before, f.committed()); diff != "" {
			f.t.Errorf("offsets (-before +after):\n%s", diff)
		}
		p.kill()
		for _, topic := range []Topic{old, f.changelog} { // as it was found before, or after
			p = f.start(onDisk(fs), func(s *setup) { s.cfg.Changelog = topic })
			f.eventually("all partitions are halted", func() bool { return cmp.Equal(sorted(p.status()), halted) })
			p.kill()
		}
	})
}

// TestWorker_ReadsANewInputTopicFromItsBeginning leaves the group with the offsets of the old topic: a coordinator that was not
// there when the topic was deleted keeps them. What lies below them in the new one was never read.
func TestWorker_ReadsANewInputTopicFromItsBeginning(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		fs := vfs.NewMem()
		p := f.start(onDisk(fs)).running(bedPartitions)
		f.load(40, 8)
		f.handled()
		p.drain()
		left, err := f.admin.FetchOffsets(f.t.Context(), f.name)
		must(f.t, err)
		_, err = f.admin.DeleteTopic(f.t.Context(), f.turns.Name)
		must(f.t, err)
		f.turns = f.topic(f.turns.Name, nil)
		f.producer = f.client(kgo.RecordPartitioner(kgo.ManualPartitioner())) // The old one does not take another topic of the name.
		must(f.t, kadm.NewClient(f.producer).CommitAllOffsets(f.t.Context(), f.name, left.Offsets()))
		f.load(40, 8)
		p = f.start(onDisk(fs)).running(bedPartitions)
		f.handled()
		p.drain()
		f.exactlyOnce(8)
	})
}
