package txn

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var errCut = errors.New("the test cut the wire")

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// wires are the connections of a test, which can be made to break at a request of some kind.
type wires struct {
	dial dial

	mu  sync.Mutex
	key kmsg.Key
	how cut
	hit int

	// armed holds a token while the next end of a transaction is to be cut; cuts counts those that were.
	armed chan struct{}
	cuts  int
}

// cut says where a connection breaks.
type cut uint8

const (
	cutNothing cut = iota
	// cutRequest loses the request before the broker has it.
	cutRequest
	// cutAnswer loses the answer after the broker has acted.
	cutAnswer
)

// breakAt makes every connection break at requests of key until mend.
func (w *wires) breakAt(key kmsg.Key, how cut) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.key, w.how, w.hit = key, how, 0
}

func (w *wires) mend() (hits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.how = cutNothing
	return w.hit
}

func (w *wires) at(request []byte) cut {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.how == cutNothing || len(request) < 6 || kmsg.Key(binary.BigEndian.Uint16(request[4:])) != w.key {
		return cutNothing
	}
	w.hit++
	return w.how
}

// Dial is a dialer for kgo.
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
	switch c.wires.at(request) {
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

func (w *wires) hits() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hit
}
