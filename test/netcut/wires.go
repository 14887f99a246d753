package netcut

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrCut is what a client sees of a connection that Wires have cut.
var ErrCut = errors.New("the test cut the wire")

// Dial makes a connection, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Wires are the connections of a client in the process of a test, which can be made to break at requests. Where a Net cuts sockets
// between processes, these also work inside a bubble of virtual time. They are safe for concurrent use.
type Wires struct {
	// Through makes the connections.
	Through Dial

	mu sync.Mutex
	at func(key kmsg.Key) Cut
}

// Cut says where a connection breaks.
type Cut uint8

// Where a connection breaks.
const (
	CutNothing Cut = iota
	// CutRequest loses the request before the broker has it.
	CutRequest
	// CutAnswer loses the answer after the broker has acted.
	CutAnswer
)

// BreakAt asks at, one call at a time, what becomes of each request from now on; nil breaks nothing.
func (w *Wires) BreakAt(at func(key kmsg.Key) Cut) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
}

// Dial is a dialer for kgo.
func (w *Wires) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := w.Through(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, wires: w}, nil
}

// request says what becomes of a request: its key stands behind its length.
func (w *Wires) request(frame []byte) Cut {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == nil || len(frame) < lengthBytes+2 {
		return CutNothing
	}
	return w.at(kmsg.Key(binary.BigEndian.Uint16(frame[lengthBytes:]))) //nolint:gosec // The same bits.
}

// wire relies on kgo, which writes each request whole and alone.
type wire struct {
	net.Conn

	wires *Wires
	mu    sync.Mutex
	cut   bool
}

// Write loses the request, or what follows it.
func (c *wire) Write(frame []byte) (int, error) {
	switch c.wires.request(frame) {
	case CutRequest:
		_ = c.Close() // The client is told of the cut.
		return 0, ErrCut
	case CutAnswer:
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
	case CutNothing:
	}
	return c.Conn.Write(frame)
}

// Read loses what the broker answers after the cut: it has acted by then.
func (c *wire) Read(answer []byte) (int, error) {
	n, err := c.Conn.Read(answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = c.Close() // As above.
		return 0, ErrCut
	}
	return n, err
}
