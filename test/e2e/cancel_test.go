package e2e_test

import (
	"testing"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

func (b *bed) cancel(id, session string) {
	b.Helper()
	b.sendEvent(&schemas.TurnEvent{Type: schemas.InputCancel, TurnID: id, SessionID: session, Reason: "tested"})
}

// TestCancel_BeforeDuringAndAfter cancels a turn that is yet to come, one that runs, one that waits behind it, and one that has
// ended; and again after a crash.
func TestCancel_BeforeDuringAndAfter(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	b.cancel("read-early", "early")
	first := b.start("w-0")
	r := b.reader()
	b.send("hello-done", "done")
	r.allEnded()
	b.cancel("hello-done", "done")
	b.send("slow-1", "ann", schemas.StatusCancelled)
	b.send("read-waiting", "ann", schemas.StatusCancelled)
	b.send("hello-next", "ann")
	b.awaitBegun("slow-1/0/0")
	b.cancel("read-waiting", "ann")
	b.cancel("slow-1", "ann")
	b.send("wait-crash", "ben", schemas.StatusCancelled)
	b.awaitBegun("wait-crash/0/0")
	r.until("the cancelled turn ends", func() bool { return r.count("hello-next", schemas.TypeTurnEnd) == 1 })
	first.kill()
	b.cancel("wait-crash", "ben")
	b.send("read-early", "early", schemas.StatusCancelled)
	second := b.start("w-0")
	r.allEnded()
	b.awaitCommitted()
	second.drain()
	r.check()
	for _, s := range b.sent {
		if end := r.end(s.id); len(s.may) > 0 && end.Code != schemas.CodeCancelled {
			t.Errorf("turn %s ended with the code %s", s.id, end.Code)
		}
	}
	if n := len(r.events("read-early")); n != 2 {
		t.Errorf("a turn that was cancelled before it came has %d events, want its start and its end", n)
	}
	if begun := b.begun()["slow-1/0/0"]; begun != 1 {
		t.Errorf("the call of the cancelled turn began %d times", begun)
	}
}

// TestLimits_EndATurnAndNotTheNext lets turns run into their limits.
func TestLimits_EndATurnAndNotTheNext(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	past, soon := time.Now().Add(-time.Minute).UTC(), time.Now().Add(5*time.Second).UTC()
	w := b.start("w-0")
	r := b.reader()
	for _, tc := range []struct {
		id       string
		deadline *time.Time
		code     schemas.Code
	}{
		{"slow-past", &past, schemas.CodeDeadlineExceeded},
		{"slow-soon", &soon, schemas.CodeDeadlineExceeded},
		{"steps-1", nil, schemas.CodeLimitExceeded},
		{"broken-1", nil, schemas.CodeLimitExceeded},
		{"nothing-in-the-script", nil, schemas.CodeModelInvalidResponse},
	} {
		ev, expected := turn(tc.id, "ann", schemas.StatusFailed)
		ev.Deadline = tc.deadline
		b.sendEvent(ev)
		b.sent = append(b.sent, expected)
		b.send("hello-after-"+tc.id, "ann")
		r.allEnded()
		if end := r.end(tc.id); end.Code != tc.code || end.Message == "" {
			t.Errorf("turn %s ended with %s (%s), want %s", tc.id, end.Code, end.Message, tc.code)
		}
	}
	b.awaitCommitted()
	w.drain()
	r.check()
}
