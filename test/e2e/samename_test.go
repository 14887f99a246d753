package e2e_test

import (
	"strings"
	"testing"
)

// TestTwoWorkersOnOneHost_TheSecondIsToldWhatToSet starts two workers without an instance id under one host name. They would have the
// same transactional ids and fence each other until both end; so the second does not start, and the first notices nothing.
func TestTwoWorkersOnOneHost_TheSecondIsToldWhatToSet(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	first := b.start("a", "LATHE_INSTANCE_ID=").ready()
	r := b.reader()
	b.send("both-1", "ann")
	second := b.start("b", "LATHE_INSTANCE_ID=")
	if code := second.wait(); code != 1 {
		t.Errorf("the second worker ended with %d, want 1", code)
	}
	if log := second.tail(); !strings.Contains(log, "LATHE_INSTANCE_ID") {
		t.Errorf("the second worker does not say what to set:\n%s", log)
	}
	b.send("both-2", "ann")
	r.allEnded()
	first.kill()
	third := b.start("c", "LATHE_INSTANCE_ID=") // The lock of a worker that was killed is free.
	b.send("both-3", "ann")
	r.allEnded()
	b.awaitCommitted()
	third.drain()
	r.check()
}

// TestTwoHostsOfOneName_EndAndSayWhatToSet does so where the second cannot see the first, as in two containers with one host name.
func TestTwoHostsOfOneName_EndAndSayWhatToSet(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	start := func(name string) *process { return b.start(name, "LATHE_INSTANCE_ID=", "TMPDIR="+b.TempDir()) }
	workers := []*process{start("a").ready(), start("b").ready()}
	r := b.reader()
	var ended *process
	for n := 0; ended == nil; n++ {
		b.send(named("both-", int32(n)), keyFor(int32(n%turnPartitions)))
		r.until("turns go on", func() bool {
			ended = oneEnded(workers)
			return len(r.open()) < 4 || ended != nil
		})
	}
	if code := ended.wait(); code != 1 {
		t.Errorf("a worker under another's name ended with %d", code)
	}
	if log := ended.tail(); !strings.Contains(log, "LATHE_INSTANCE_ID") {
		t.Errorf("the worker does not say what to set:\n%s", log)
	}
	for _, p := range workers {
		p.kill()
	}
	for i := range b.sent { // Whatever ran as the workers were killed is in doubt.
		b.sent[i].may = []string{"completed", "indeterminate"}
	}
	last := b.start("c", "LATHE_INSTANCE_ID=own")
	b.send("read-last", "ann")
	r.allEnded()
	b.awaitCommitted()
	last.drain()
	r.check()
}

// oneEnded is the first of the processes that has ended.
func oneEnded(processes []*process) *process {
	for _, p := range processes {
		select {
		case <-p.Ended():
			return p
		default:
		}
	}
	return nil
}
