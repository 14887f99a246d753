package netcut

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout bounds a connection to a broker. The kernel answers for a stopped one until its backlog is full.
const dialTimeout = 10 * time.Second

// link is the way to one broker.
type link struct {
	net    *Net
	addr   string
	port   int
	guard  int    // a bound socket that holds the port while nobody listens
	target string // set once, before serve

	listener  net.Listener      // nil while connections are refused; under Net.changing
	listeners chan net.Listener // from Net.Heal to serve

	mu struct {
		sync.Mutex
		stalled Way
		refused bool
		delay   time.Duration
		changed chan struct{} // closed, and made anew, at every change
		pairs   map[*pair]struct{}
	}
}

// newLink takes a port. The guard never listens, so that the kernel refuses connections as it does for a dead broker;
// SO_REUSEPORT lets a listener come and go beside it, while nobody else gets the port.
func newLink(n *Net) (*link, error) {
	guard, err := boundSocket(0)
	if err != nil {
		return nil, fmt.Errorf("take a port: %w", err)
	}
	l := &link{net: n, guard: guard, listeners: make(chan net.Listener, 1)}
	l.mu.changed, l.mu.pairs = make(chan struct{}), make(map[*pair]struct{})
	if l.port, err = portOf(guard); err != nil {
		return nil, errors.Join(fmt.Errorf("take a port: %w", err), unix.Close(guard))
	}
	l.addr = "127.0.0.1:" + strconv.Itoa(l.port)
	return l, nil
}

// boundSocket is a socket on a port of the loopback that others may bind too; port 0 takes a free one.
func boundSocket(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

var errNoPort = errors.New("the socket has no port")

func portOf(fd int) (int, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	in4, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return 0, errNoPort
	}
	return in4.Port, nil
}

// listen opens the port.
func (l *link) listen() (net.Listener, error) {
	fd, err := boundSocket(l.port)
	if err != nil {
		return nil, fmt.Errorf("listen for a broker: %w", err)
	}
	file := os.NewFile(uintptr(fd), l.addr)
	defer func() { _ = file.Close() }() // FileListener takes a copy
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listen for a broker: %w", err)
	}
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listen for a broker: %w", err)
	}
	return listener, nil
}

// serve takes connections from one listener after another.
func (l *link) serve(ctx context.Context) {
	for {
		select {
		case listener := <-l.listeners:
			l.accept(ctx, listener)
		case <-ctx.Done():
			return
		}
	}
}

func (l *link) accept(ctx context.Context, listener net.Listener) {
	unhook := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer unhook()
	for {
		worker, err := listener.Accept()
		if err != nil {
			return // refuse has closed it
		}
		p := l.newPair(worker)
		l.net.wg.Go(func() { p.run(ctx) })
	}
}

// refuse closes the port; the caller holds Net.changing.
func (l *link) refuse() {
	l.change(func() { l.mu.refused = true })
	if l.listener != nil {
		_ = l.listener.Close()
		l.listener = nil
	}
}

// reset ends all connections. Of one that waits for a lost answer, the worker's side has ended already.
func (l *link) reset() {
	l.mu.Lock()
	pairs := make([]*pair, 0, len(l.mu.pairs))
	for p := range l.mu.pairs {
		pairs = append(pairs, p)
	}
	l.mu.Unlock()
	for _, p := range pairs {
		if !p.isOrphan() {
			p.cut()
		}
	}
}

func (l *link) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// weather is what holds now, until changed is closed.
func (l *link) weather(way Way) (stalled bool, delay time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.stalled&way != 0, l.mu.delay, l.mu.changed
}

func (l *link) release() error {
	if err := unix.Close(l.guard); err != nil {
		return fmt.Errorf("give a port back: %w", err)
	}
	return nil
}
