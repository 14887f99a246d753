package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wires are the connections of a test, which can be made to break at requests of some kind.
type wires struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// at says what becomes of a request.
	at func(key kmsg.Key) damage
}

type damage uint8

var errCut = errors.New("the test cut the wire")

func (w *wires) breakAt(at func(key kmsg.Key) damage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
}

func (w *wires) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, wires: w}, nil
}

type wire struct {
	net.Conn

	wires *wires
	mu    sync.Mutex
	cut   bool
}

func (c *wire) Write(request []byte) (int, error) {
	c.wires.mu.Lock()
	how := cutNothing
	if c.wires.at != nil && len(request) >= 6 {
		how = c.wires.at(kmsg.Key(binary.BigEndian.Uint16(request[4:])))
	}
	c.wires.mu.Unlock()
	switch how {
	case cutRequest:
		c.Close()
		return 0, errCut
	case cutAnswer:
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
	case cutNothing:
	}
	return c.Conn.Write(request)
}

// Read loses what the broker answers after the cut: it has acted by then.
func (c *wire) Read(answer []byte) (int, error) {
	n, err := c.Conn.Read(answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		c.Close()
		return 0, errCut
	}
	return n, err
}
