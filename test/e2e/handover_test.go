package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestScaleOutAndIn_LeavesNoCallInDoubt goes from one worker to two and back while changing calls run in every partition: those of
// the partitions that move may end within the drain budget, the rest of their turns runs at the other worker, each call once.
func TestScaleOutAndIn_LeavesNoCallInDoubt(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.settings["LATHE_GROUP_PROTOCOL"] = protocol
			b.createTurns()
			first := b.start("w-0").ready()
			r := b.reader()
			b.sendMany("many-out-")
			second := b.start("w-1")
			b.eventually("partitions move", func() bool { return first.logged("partitions are revoked") != nil })
			b.releaseCalls("many-out-")
			second.awaitPartitions()
			r.allEnded()
			b.wantMovedOnce(r, "many-out-")

			b.sendMany("many-in-")
			second.signal(syscall.SIGTERM)
			b.eventually("the second worker drains", func() bool { return second.logged("worker drains") != nil })
			b.releaseCalls("many-in-")
			if code := second.wait(); code != 0 {
				t.Errorf("the drain ended with %d\n%s", code, second.tail())
			}
			if code, out, errs := b.command("", "leave", "w-1"); code != 0 || !strings.Contains(out, "w-1") {
				t.Errorf("leave ended with %d: %s%s", code, out, errs)
			}
			r.allEnded()
			b.wantMovedOnce(r, "many-in-")
			b.awaitCommitted()
			first.drain()
			r.check() // Every turn completed, so none was in doubt.
		})
	}
}

// sendMany sends a turn with six changing calls to every partition, and waits until the first two of each run.
func (b *bed) sendMany(prefix string) {
	b.Helper()
	for p := range int32(turnPartitions) {
		b.send(named(prefix, p), keyFor(p))
	}
	for p := range int32(turnPartitions) {
		b.awaitBegun(named(prefix, p) + "/0/0")
		b.awaitBegun(named(prefix, p) + "/0/1")
	}
}

func (b *bed) releaseCalls(prefix string) {
	b.Helper()
	for p := range int32(turnPartitions) {
		b.release(named(prefix, p))
	}
}

// wantMovedOnce expects that two of the turns had two workers, and that each call ran once.
func (b *bed) wantMovedOnce(r *reader, prefix string) {
	b.Helper()
	moved := 0
	for p := range int32(turnPartitions) {
		if *r.end(named(prefix, p)).Workers == 2 {
			moved++
		}
		for n := range 6 {
			if key := fmt.Sprintf("%s/0/%d", named(prefix, p), n); b.begun()[key] != 1 {
				b.Errorf("call %s ran %d times, want once", key, b.begun()[key])
			}
		}
	}
	if moved != 2 {
		b.Errorf("%d of the turns %s* had two workers, want 2", moved, prefix)
	}
}

// endEverywhere sends a turn to each partition and wants them all to end soon after a moment: nobody who is gone holds one.
func (b *bed) endEverywhere(r *reader, prefix string, since time.Time) {
	b.Helper()
	for p := range int32(turnPartitions) {
		b.send(named(prefix, p), keyFor(p))
	}
	r.allEnded()
	if took := time.Since(since); took > 30*time.Second {
		b.Errorf("turns on all partitions ended after %s, as if nobody had left", took)
	}
}

// TestLeave_GivesThePartitionsOfAWorkerThatIsGoneToTheOthers kills a static member whose session would last for long, and takes
// it out of the group by hand.
func TestLeave_GivesThePartitionsOfAWorkerThatIsGoneToTheOthers(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.settings["LATHE_GROUP_PROTOCOL"] = protocol
			b.settings["LATHE_SESSION_TIMEOUT"] = "45s"
			b.createTurns()
			stays := b.start("w-0").ready()
			r := b.reader()
			goes := b.start("w-1")
			goes.awaitPartitions()
			goes.kill()
			began := time.Now()
			code, out, errs := b.command("", "leave", "w-1", "w-9")
			b.wantCommand("leave", code, 0, out, errs, "w-1 is out of group", "w-9 was not in group")
			b.endEverywhere(r, "both-", began)
			b.awaitCommitted()
			stays.drain()
			r.check()
		})
	}
}

// TestLeaveOnStop_ScalesInWithoutIdlePartitions stops a static member that was told to leave.
func TestLeaveOnStop_ScalesInWithoutIdlePartitions(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, newCluster(t))
			b.settings["LATHE_GROUP_PROTOCOL"] = protocol
			b.settings["LATHE_SESSION_TIMEOUT"] = "45s"
			b.settings["LATHE_LEAVE_ON_STOP"] = "true"
			b.createTurns()
			stays := b.start("w-0").ready()
			r := b.reader()
			goes := b.start("w-1")
			goes.awaitPartitions()
			goes.drain()
			began := time.Now()
			b.endEverywhere(r, "both-", began)
			b.awaitCommitted()
			stays.drain()
			r.check()
		})
	}
}
