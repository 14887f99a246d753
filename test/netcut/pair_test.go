package netcut

import (
	"bufio"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelay_TakesItsTimeEachWay goes by the clock of a bubble, over pipes.
func TestDelay_TakesItsTimeEachWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const d = 3 * time.Second
		l := &link{net: &Net{}}
		l.mu.changed, l.mu.pairs = make(chan struct{}), make(map[*pair]struct{})
		l.net.links = []*link{l}
		l.net.Delay(d)
		worker, workerEnd := net.Pipe()
		broker, brokerEnd := net.Pipe()
		p := l.newPair(workerEnd)
		if !p.adopt(brokerEnd) {
			t.Fatal("the pair does not take its broker")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.relay(brokerEnd)
		}()
		began := time.Now()
		if _, err := worker.Write(frame(0, 0, 7)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(broker, make([]byte, 12)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != d {
			t.Errorf("the request took %s, want %s", took, d)
		}
		if _, err := broker.Write(frame(7, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := peekResponse(bufio.NewReader(worker)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 2*d {
			t.Errorf("the answer took %s, want %s", took, 2*d)
		}
		p.cut()
		<-done
	})
}
