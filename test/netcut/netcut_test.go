package netcut

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take on a busy machine before its test fails.
const patience = 30 * time.Second

// fakeBroker answers each request with a frame that has its correlation id and an empty body, and says what it has seen.
type fakeBroker struct {
	net.Listener

	seen   chan request  // each request, when it is whole
	answer chan struct{} // where it is not nil, each answer waits for a token
	closed chan struct{} // a token when a connection of it has ended
}

func newFakeBroker(t *testing.T, held bool) *fakeBroker {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{Listener: l, seen: make(chan request, 100), closed: make(chan struct{}, 100)}
	if held {
		b.answer = make(chan struct{})
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(t.Context(), c)
		}
	}()
	return b
}

func (b *fakeBroker) serve(ctx context.Context, c net.Conn) {
	defer func() { b.closed <- struct{}{} }()
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		req, err := peekRequest(in)
		if err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, in, req.size); err != nil {
			return
		}
		b.seen <- req
		if b.answer != nil {
			select {
			case <-b.answer:
			case <-ctx.Done():
				return
			}
		}
		if _, err := c.Write(frame(uint32(req.correlation), 0)); err != nil {
			return
		}
	}
}

// frame is a response, or with a first word that holds key and version, and the correlation id in the second, a request.
func frame(first uint32, size int, words ...uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+4*len(words)+size))
	b = binary.BigEndian.AppendUint32(b, first)
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return append(b, make([]byte, size)...)
}

// bed is a net of one link to a fake broker.
type bed struct {
	*testing.T

	net    *Net
	broker *fakeBroker
}

func newBed(t *testing.T, held bool) *bed {
	t.Helper()
	b := &bed{T: t, broker: newFakeBroker(t, held)}
	var err error
	b.net, err = Open(1)
	b.must(err)
	t.Cleanup(func() { b.must(b.net.Close()) })
	b.must(b.net.Forward(t.Context(), []string{b.broker.Addr().String()}))
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// worker is a connection through the proxy.
type worker struct {
	net.Conn

	b  *bed
	in *bufio.Reader
}

func (b *bed) dial() (*worker, error) {
	c, err := net.Dial("tcp4", b.net.Addrs()[0])
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { c.Close() })
	return &worker{c, b, bufio.NewReader(c)}, c.SetDeadline(time.Now().Add(patience))
}

func (b *bed) connect() *worker {
	b.Helper()
	w, err := b.dial()
	b.must(err)
	return w
}

// send sends a request with a body of some size.
func (w *worker) send(key int16, correlation int32, size int) {
	w.b.Helper()
	_, err := w.Write(frame(uint32(key)<<16, size, uint32(correlation)))
	w.b.must(err)
}

// receive returns the correlation id of the next answer.
func (w *worker) receive() (int32, error) {
	resp, err := peekResponse(w.in)
	if err == nil {
		_, err = io.CopyN(io.Discard, w.in, resp.size)
	}
	return resp.correlation, err
}

func (w *worker) want(correlation int32) {
	w.b.Helper()
	got, err := w.receive()
	if err != nil || got != correlation {
		w.b.Fatalf("the answer is %d, %v; want %d", got, err, correlation)
	}
}

// wantBroken expects that the connection breaks without an answer, as by a cut, and does not end in good order.
func (w *worker) wantBroken() {
	w.b.Helper()
	if got, err := w.receive(); !errors.Is(err, syscall.ECONNRESET) {
		w.b.Fatalf("the answer is %d, %v; want a broken connection", got, err)
	}
}

// silent expects no answer for a moment, which is long enough for one that is not held back.
func (w *worker) silent() {
	w.b.Helper()
	w.b.must(w.SetReadDeadline(time.Now().Add(50 * time.Millisecond)))
	if got, err := w.receive(); !errors.Is(err, syscall.EAGAIN) && !isTimeout(err) {
		w.b.Fatalf("the answer is %d, %v; want none", got, err)
	}
	w.b.must(w.SetReadDeadline(time.Now().Add(patience)))
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

func (b *bed) sees(key int16, correlation int32) {
	b.Helper()
	select {
	case got := <-b.broker.seen:
		if got.key != key || got.correlation != correlation {
			b.Fatalf("the broker sees request %d of key %d, want %d of key %d", got.correlation, got.key, correlation, key)
		}
	case <-time.After(patience):
		b.Fatalf("the broker does not see request %d", correlation)
	}
}

func (b *bed) seesNothing() {
	b.Helper()
	select {
	case got := <-b.broker.seen:
		b.Fatalf("the broker sees request %d of key %d", got.correlation, got.key)
	default:
	}
}

func (b *bed) await(what string, c <-chan struct{}) {
	b.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		b.Fatalf("not in %s: %s", patience, what)
	}
}

func TestNet_PassesFramesOfAnySize(t *testing.T) {
	t.Parallel()
	b := newBed(t, false)
	w := b.connect()
	for i, size := range []int{0, 1, bufferBytes - 1, bufferBytes, 5 << 20} {
		w.send(0, int32(i), size)
		w.want(int32(i))
	}
}

func TestNet_RefusesUntilItForwards(t *testing.T) {
	t.Parallel()
	n, err := Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if c, err := net.Dial("tcp4", n.Addrs()[0]); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection is %v, %v; want it refused", c, err)
	}
}

func TestCut_BreaksWhatIsAndRefusesWhatComesUntilHeal(t *testing.T) {
	t.Parallel()
	b := newBed(t, false)
	for i := range int32(20) {
		w := b.connect()
		w.send(0, i, 0)
		w.want(i)
		b.net.Cut()
		w.wantBroken()
		if c, err := b.dial(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("a connection is %v, %v; want it refused", c, err)
		}
		b.must(b.net.Heal())
	}
}

func TestCut_OfOneBrokerLeavesTheOthers(t *testing.T) {
	t.Parallel()
	one, two := newFakeBroker(t, false), newFakeBroker(t, false)
	n, err := Open(2)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, net: n}
	t.Cleanup(func() { b.must(n.Close()) })
	b.must(n.Forward(t.Context(), []string{one.Addr().String(), two.Addr().String()}))
	n.Cut(1)
	w := b.connect() // to the first
	w.send(0, 1, 0)
	w.want(1)
	if c, err := net.Dial("tcp4", n.Addrs()[1]); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to the second broker is %v, %v; want it refused", c, err)
	}
}

func TestReset_BreaksWhatIsAndTakesWhatComes(t *testing.T) {
	t.Parallel()
	b := newBed(t, false)
	w := b.connect()
	w.send(0, 1, 0)
	w.want(1)
	b.net.Reset()
	w.wantBroken()
	again := b.connect()
	again.send(0, 2, 0)
	again.want(2)
}

func TestStall_HoldsOneWayAndDeliversWhenItHeals(t *testing.T) {
	t.Parallel()
	t.Run("to the broker", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, true)
		w := b.connect()
		w.send(0, 1, 0)
		b.sees(0, 1)
		b.net.Stall(ToBroker)
		w.send(0, 2, 0)
		b.broker.answer <- struct{}{}
		w.want(1) // the other way is free
		b.seesNothing()
		b.must(b.net.Heal())
		b.sees(0, 2)
		b.broker.answer <- struct{}{}
		w.want(2)
	})
	t.Run("to the worker", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, false)
		w := b.connect()
		w.send(0, 1, 0)
		w.want(1)
		b.sees(0, 1)
		b.net.Stall(ToWorker)
		w.send(0, 2, 0)
		b.sees(0, 2)
		w.silent()
		b.must(b.net.Heal())
		w.want(2)
	})
	t.Run("both", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, false)
		b.net.Stall(Both)
		w := b.connect() // it is taken, and waits
		w.send(0, 1, 0)
		w.silent()
		b.seesNothing()
		b.must(b.net.Heal())
		w.want(1)
	})
}

// TestStall_HidesThatTheWorkerHasGone: a broker behind a black hole keeps the session of a client that has long given up.
func TestStall_HidesThatTheWorkerHasGone(t *testing.T) {
	t.Parallel()
	b := newBed(t, false)
	w := b.connect()
	w.send(0, 1, 0)
	w.want(1)
	b.net.Stall(ToBroker)
	w.Close()
	select {
	case <-b.broker.closed:
		t.Error("the broker heard of the end through a stalled way")
	case <-time.After(50 * time.Millisecond):
	}
	b.must(b.net.Heal())
	b.await("the broker hears of the end", b.broker.closed)
}

func TestCut_EndsWhatIsStalled(t *testing.T) {
	t.Parallel()
	b := newBed(t, false)
	b.net.Stall(Both)
	w := b.connect()
	w.send(0, 1, 0)
	b.net.Cut()
	w.wantBroken()
}

func TestClose_IsNotHeldUpByAStall(t *testing.T) {
	t.Parallel()
	b := newBed(t, false)
	w := b.connect()
	w.send(0, 1, 0)
	w.want(1)
	b.net.Stall(Both)
	w.send(0, 2, 0)
	b.must(b.net.Close())
	b.must(b.net.Heal()) // too late, and of no effect
	if c, err := b.dial(); err == nil {
		t.Errorf("%v was taken after the end", c)
	}
}
