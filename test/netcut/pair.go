package netcut

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// bufferBytes is how much of one direction waits in the proxy, beside what the kernel holds.
const bufferBytes = 64 << 10

var errCut = errors.New("the connection was cut")

// pair is one connection of a worker and the one to its broker.
type pair struct {
	link   *link
	worker net.Conn
	gone   chan struct{} // closed by cut
	once   sync.Once

	mu struct {
		sync.Mutex
		broker net.Conn // nil until it is there
		// lost is the request whose answer must not get through, if there is one.
		lost *lostAnswer
		// orphaned says that the worker's side is cut, and the broker's waits for the answer that is lost.
		orphaned bool
	}
}

// lostAnswer is a request that a trigger took.
type lostAnswer struct {
	correlation int32
	armed       *Armed
}

func (l *link) newPair(worker net.Conn) *pair {
	p := &pair{link: l, worker: worker, gone: make(chan struct{})}
	l.mu.Lock()
	l.mu.pairs[p] = struct{}{}
	refused := l.mu.refused
	l.mu.Unlock()
	if refused { // It came in the moment of the cut.
		p.cut()
	}
	return p
}

// run passes everything on until one side ends or the connection is cut.
func (p *pair) run(ctx context.Context) {
	defer p.forget()
	unhook := context.AfterFunc(ctx, p.cut)
	defer unhook()
	if p.await(ToBroker) != nil {
		return
	}
	broker, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp4", p.link.target)
	if err != nil || !p.adopt(broker) {
		p.cut()
		return
	}
	p.relay(broker)
}

// relay passes on both ways.
func (p *pair) relay(broker net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { p.toBroker(broker) })
	wg.Go(func() { p.toWorker(broker) })
	wg.Wait()
}

// adopt takes the broker's side unless the connection was cut meanwhile.
func (p *pair) adopt(broker net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gone:
		_ = broker.Close()
		return false
	default:
		p.mu.broker = broker
		return true
	}
}

func (p *pair) forget() {
	p.close()
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	delete(p.link.mu.pairs, p)
}

// cut ends both sides at once, whatever is on its way.
func (p *pair) cut() { p.end(reset) }

// close ends both sides. What was passed on to the broker still reaches it.
func (p *pair) close() { p.end(func(c net.Conn) { _ = c.Close() }) }

// reset closes a connection so that its peer sees it broken and not ended.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// end ends the pair once. A trigger whose answer has not come waits for another request, before anybody sees the end.
func (p *pair) end(worker func(net.Conn)) {
	p.once.Do(func() {
		p.mu.Lock()
		close(p.gone)
		broker, lost := p.mu.broker, p.mu.lost
		p.mu.Unlock()
		if lost != nil {
			lost.armed.putBack()
		}
		worker(p.worker)
		if broker != nil {
			_ = broker.Close()
		}
	})
}

// toBroker passes requests on, and looks for the one that a trigger waits for.
func (p *pair) toBroker(broker net.Conn) {
	in := bufio.NewReaderSize(p.worker, bufferBytes)
	for {
		req, err := peekRequest(in)
		if err != nil {
			break
		}
		armed := p.link.net.match(req.key)
		if armed != nil && armed.when == Before {
			armed.fire(p.cut)
			p.cut() // also when the trigger was disarmed in this moment
			return
		}
		if armed != nil {
			p.lose(&lostAnswer{req.correlation, armed})
		}
		if err := p.pass(ToBroker, in, req.size, broker); err != nil {
			break
		}
		if armed != nil && armed.when == Sent {
			p.orphan()
			armed.fire(func() { reset(p.worker) })
			reset(p.worker)
			return
		}
	}
	// The news that the worker has gone travels as its bytes do.
	if p.await(ToBroker) == nil {
		p.close()
	}
}

// toWorker passes answers on, but for one that is to be lost.
func (p *pair) toWorker(broker net.Conn) {
	in := bufio.NewReaderSize(broker, bufferBytes)
	for {
		resp, err := peekResponse(in)
		if err != nil {
			break
		}
		if lost := p.isLost(resp.correlation); lost != nil {
			lost.armed.fire(p.cut)
			p.cut()
			return
		}
		if err := p.pass(ToWorker, in, resp.size, p.worker); err != nil {
			break
		}
	}
	if p.await(ToWorker) == nil {
		p.close()
	}
}

// pass moves one frame as its bytes come, when the way is free.
func (p *pair) pass(way Way, in *bufio.Reader, size int64, out net.Conn) error {
	for size > 0 {
		if _, err := in.Peek(1); err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		chunk, err := in.Peek(int(min(size, int64(in.Buffered()))))
		if err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		if err := p.write(way, chunk, out); err != nil {
			return err
		}
		if _, err := in.Discard(len(chunk)); err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		size -= int64(len(chunk))
	}
	return nil
}

// write waits until the way is free. What would go to a worker's side that is cut is dropped.
func (p *pair) write(way Way, chunk []byte, out io.Writer) error {
	if way == ToWorker && p.isOrphan() {
		return nil
	}
	if err := p.await(way); err != nil {
		return err
	}
	if _, err := out.Write(chunk); err != nil && (way == ToBroker || !p.isOrphan()) {
		return fmt.Errorf("pass a frame on: %w", err)
	}
	return nil
}

// await returns when the way is free and the delay has passed.
func (p *pair) await(way Way) error {
	waited := false
	for {
		stalled, delay, changed := p.link.weather(way)
		var late <-chan time.Time
		switch {
		case stalled:
		case delay > 0 && !waited:
			late = time.After(delay)
		default:
			return p.standing()
		}
		select {
		case <-changed:
		case <-late:
			waited = true
		case <-p.gone:
			return errCut
		}
	}
}

func (p *pair) standing() error {
	select {
	case <-p.gone:
		return errCut
	default:
		return nil
	}
}

func (p *pair) lose(l *lostAnswer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.lost = l
}

func (p *pair) isLost(correlation int32) *lostAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.lost != nil && p.mu.lost.correlation == correlation {
		return p.mu.lost
	}
	return nil
}

// orphan says that the worker's side is being cut. The broker's stays until the answer comes, so that the request is
// certainly handled.
func (p *pair) orphan() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.orphaned = true
}

func (p *pair) isOrphan() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.orphaned
}
