//go:build kafka

package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// losing is a bed whose cluster can be asked to lose something.
type losing struct {
	*bed

	kafka *kafkatest.Cluster
	r     *reader
}

// newLosing makes a deployment that has done one turn on every partition, by a worker w-0 that still runs.
func newLosing(t *testing.T) (*losing, *process) {
	t.Helper()
	l := &losing{bed: newBed(t, newCluster(t)), kafka: kafkatest.Shared(t, 1)}
	l.createTurns()
	for p := range int32(turnPartitions) {
		l.send(named("both-first-", p), keyFor(p))
	}
	w := l.start("w-0")
	l.r = l.reader()
	l.r.allEnded()
	l.awaitCommitted()
	return l, w
}

// awaitHalted waits until the worker says that partitions are halted and why; it stays alive and is not ready.
func (l *losing) awaitHalted(w *process, partitions int, texts ...string) {
	l.Helper()
	l.eventually("partitions of worker "+w.Name+" are halted, and no other is being restored", func() bool {
		_, body := w.probe("/readyz?verbose")
		return strings.Count(body, `"state": "halted"`) == partitions &&
			strings.Count(body, `"state": "running"`) == turnPartitions-partitions
	})
	status, why := w.probe("/readyz")
	for _, text := range texts {
		if !strings.Contains(why, text) {
			l.Errorf("worker %s says %q, which lacks %q", w.Name, why, text)
		}
	}
	if live, _ := w.probe("/livez"); status == 200 || live != 200 {
		l.Errorf("worker %s answers readyz with %d and livez with %d, want it live and not ready", w.Name, status, live)
	}
}

// unmoved returns a check that nothing has begun and no offset of the partitions has moved since.
func (l *losing) unmoved(partitions ...int32) func() {
	l.Helper()
	calls := l.begun()
	was := l.committed()
	return func() {
		l.Helper()
		for key, n := range l.begun() {
			for _, p := range partitions {
				if strings.HasPrefix(key, named("both-first-", p)+"/") && n > calls[key] {
					l.Errorf("the call %s ran again", key)
				}
			}
		}
		now := l.committed()
		for _, p := range partitions {
			before, _ := was.Lookup(l.topic("turns"), p)
			after, _ := now.Lookup(l.topic("turns"), p)
			if before.At != after.At {
				l.Errorf("the offset of partition %d went from %d to %d", p, before.At, after.At)
			}
		}
	}
}

// TestTruncatedChangelog_HaltsThePartitionUntilItsStateOrAPersonComes deletes the records of one partition of the changelog. A
// worker that would have to restore from it must not take it for empty, not even after a restart: turns that were done would run
// again. The worker that still has the state goes on.
func TestTruncatedChangelog_HaltsThePartitionUntilItsStateOrAPersonComes(t *testing.T) {
	t.Parallel()
	l, first := newLosing(t)
	first.drain()
	l.must(l.kafka.Truncate(t.Context(), l.changelog(), map[int32]int64{1: -1}))
	l.sendAgain()
	unmoved := l.unmoved(1)
	for range 2 {
		other := l.start("w-1")
		l.awaitHalted(other, 1, "changelog", "truncated")
		other.awaitPartitions()
		unmoved()
		l.endOf(other)
	}
	l.send("read-late", keyFor(1))
	again := l.start("w-0")
	l.r.allEnded()
	l.awaitCommitted()
	again.drain()
	l.r.check()
}

// endOf stops a worker that has halted partitions.
func (l *losing) endOf(w *process) {
	l.Helper()
	w.kill()
}

// TestTruncatedChangelog_IsTakenAsItIsWhenAPersonResetsTheOffset: the way out when no worker has the state any more. It holds
// for the workers that come after, too.
func TestTruncatedChangelog_IsTakenAsItIsWhenAPersonResetsTheOffset(t *testing.T) {
	t.Parallel()
	l, first := newLosing(t)
	first.drain()
	l.must(l.kafka.Truncate(t.Context(), l.changelog(), map[int32]int64{1: -1}))
	at, _ := l.committed().Lookup(l.topic("turns"), 1)
	var offsets kadm.Offsets
	offsets.AddOffset(l.topic("turns"), 1, at.At, -1)
	l.eventually("the group is empty and the offset is set", func() bool {
		return l.adm.CommitAllOffsets(l.ctx, l.app, offsets) == nil
	})
	for _, name := range []string{"w-1", "w-2"} {
		l.send("read-"+name, keyFor(1))
		w := l.start(name)
		l.r.allEnded()
		l.awaitCommitted()
		w.drain()
	}
	l.r.toEnd()
	e := l.r.evidence()
	e.Local = nil // The disks lack what was accepted as lost.
	for _, v := range e.Check() {
		t.Error(v)
	}
}

// TestRecreatedChangelog_HaltsAllPartitions: found at the start, the new topic has another id and nothing in it.
func TestRecreatedChangelog_HaltsAllPartitions(t *testing.T) {
	t.Parallel()
	l, first := newLosing(t)
	first.drain()
	l.must(l.kafka.RecreateTopic(t.Context(), l.changelog()))
	l.sendAgain()
	unmoved := l.unmoved(0, 1, 2, 3)
	for range 2 {
		again := l.start("w-0")
		l.awaitHalted(again, turnPartitions, "changelog", "truncated or replaced")
		unmoved()
		l.endOf(again)
	}
}

// TestDeletedChangelog_IsNotMadeAnewInSilence: the worker makes topics that are missing, and must see that this one was not new.
func TestDeletedChangelog_IsNotMadeAnewInSilence(t *testing.T) {
	t.Parallel()
	l, first := newLosing(t)
	first.drain()
	l.must(l.kafka.DeleteTopic(t.Context(), l.changelog()))
	l.sendAgain()
	unmoved := l.unmoved(0, 1, 2, 3)
	again := l.start("w-0")
	l.awaitHalted(again, turnPartitions, "changelog", "truncated or replaced")
	unmoved()
}

// TestRecreatedChangelog_UnderARunningWorkerTakesNoCommit: what went into the new topic would look whole to the next owner,
// without all that was in the old one.
func TestRecreatedChangelog_UnderARunningWorkerTakesNoCommit(t *testing.T) {
	t.Parallel()
	l, w := newLosing(t)
	l.must(l.kafka.RecreateTopic(t.Context(), l.changelog()))
	unmoved := l.unmoved(0, 1, 2, 3)
	for p := range int32(turnPartitions) {
		l.send(named("read-late-", p), keyFor(p))
	}
	l.awaitHalted(w, turnPartitions, l.changelog())
	unmoved()
	l.endOf(w)
	again := l.start("w-0")
	l.awaitHalted(again, turnPartitions, "changelog", "truncated or replaced")
	unmoved()
}

// TestRecreatedTurns_AreReadFromTheirBeginningAfterARestart: offsets of the old topic mean nothing in the new one, but the state
// still knows which turns are done.
func TestRecreatedTurns_AreReadFromTheirBeginningAfterARestart(t *testing.T) {
	t.Parallel()
	l, w := newLosing(t)
	calls := len(l.ledger())
	l.must(l.kafka.RecreateTopic(t.Context(), l.topic("turns")))
	l.cl = l.client(kgo.RecordPartitioner(kgo.ManualPartitioner())) // The old one does not take another topic under the name.
	began := time.Now()
	l.sendAgain()
	for p := range int32(turnPartitions) {
		l.send(named("both-late-", p), keyFor(p))
	}
	l.awaitHalted(w, turnPartitions, "turns topic was deleted or made again")
	t.Logf("halted after %s", time.Since(began).Round(time.Millisecond))
	if got := len(l.ledger()); got != calls {
		t.Errorf("%d lines in the ledger, want %d: a worker ran turns of a topic that it does not know", got, calls)
	}
	l.endOf(w)
	again := l.start("w-0")
	l.r.allEnded()
	l.awaitCommitted()
	again.drain()
	l.r.check()
}
