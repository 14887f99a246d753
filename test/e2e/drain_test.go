package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestDrain_LeavesNoCallInDoubt asks for six changing calls of which two may run at once, and drains the worker while the
// first two run: the next worker runs the others, each once, and none is in doubt.
func TestDrain_LeavesNoCallInDoubt(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	b.send("many-1", "ann")
	b.send("many-2", "ben")
	first := b.start("w-0")
	r := b.reader()
	b.eventually("the first wave of both turns runs", func() bool { return len(b.begun()) == 4 })
	first.signal(syscall.SIGTERM)
	b.eventually("the worker drains", func() bool { return first.logged("worker drains") != nil })
	b.release("many-1")
	b.release("many-2")
	if code := first.wait(); code != 0 {
		t.Fatalf("the drain ended with %d, want 0\n%s", code, first.tail())
	}
	if begun := b.begun(); len(begun) != 4 {
		t.Errorf("%v began before the end of the drain, want the first wave of each turn", begun)
	}
	second := b.start("w-0")
	r.allEnded()
	second.drain()
	r.check()
	for _, turn := range []string{"many-1", "many-2"} {
		for n := range 6 {
			if key := fmt.Sprintf("%s/0/%d", turn, n); b.begun()[key] != 1 {
				t.Errorf("call %s ran %d times, want once", key, b.begun()[key])
			}
		}
		if end := r.end(turn); *end.Workers != 2 {
			t.Errorf("turn %s had %d workers, want 2", turn, *end.Workers)
		}
	}
}

// TestDrain_IsNotReadyAndServesItsProbes follows the probes through the life of a worker.
func TestDrain_IsNotReadyAndServesItsProbes(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	b.send("wait-1", "ann")
	w := b.start("w-0").ready()
	if status, body := w.probe("/livez"); status != http.StatusOK {
		t.Errorf("/livez: %d %s", status, body)
	}
	r := b.reader()
	b.awaitBegun("wait-1/0/0")
	w.signal(syscall.SIGTERM)
	b.eventually("a worker that drains is not ready and lives", func() bool {
		ready, _ := w.probe("/readyz")
		live, _ := w.probe("/livez")
		return ready == http.StatusServiceUnavailable && live == http.StatusOK
	})
	b.release("wait-1")
	if code := w.wait(); code != 0 {
		t.Errorf("the drain ended with %d\n%s", code, w.tail())
	}
	next := b.start("w-0")
	r.allEnded()
	next.drain()
	r.check()
}

// TestSecondSignal_StopsAtOnceAndLosesNothing stops a worker that has a call running with two signals.
func TestSecondSignal_StopsAtOnceAndLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	b.send("wait-1", "ann")
	w := b.start("w-0")
	r := b.reader()
	b.awaitBegun("wait-1/0/0")
	w.signal(syscall.SIGTERM)
	b.eventually("the worker drains", func() bool { return w.logged("worker drains") != nil })
	w.signal(syscall.SIGTERM)
	if code := w.wait(); code != 1 {
		t.Errorf("a worker that was stopped twice ended with %d, want 1\n%s", code, w.tail())
	}
	b.release("wait-1")
	next := b.start("w-0")
	r.allEnded()
	next.drain()
	r.check()
}

// TestSignal_WhileTheWorkerStartsIsAClearEnd stops a worker whose broker takes connections and never answers.
func TestSignal_WhileTheWorkerStartsIsAClearEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	t.Cleanup(func() { silent.Close() })
	taken := make(chan struct{})
	go func() {
		if conn, err := silent.Accept(); err == nil {
			defer conn.Close()
			close(taken)
			<-t.Context().Done()
		}
	}()
	w := b.start("w-0", "LATHE_BROKERS="+silent.Addr().String())
	select {
	case <-taken:
	case <-time.After(patience):
		t.Fatalf("the worker asks no broker\n%s", w.tail())
	}
	w.signal(syscall.SIGTERM)
	if code := w.wait(); code != 0 {
		t.Errorf("a worker that was told to stop while it started ended with %d, want 0\n%s", code, w.tail())
	}
}
