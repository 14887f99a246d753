// Package netcut is the network between workers and brokers, for tests that break it.
//
// It hides one TCP proxy per broker, and how Kafka frames what goes through: a connection can be cut just before or just
// after a request of a given kind. Each broker advertises the proxy's address on a listener of its own, so that a client
// that bootstraps through the proxies never learns another way, while everybody else talks to the brokers directly.
package netcut

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Way is a direction, or both.
type Way uint8

// The two directions.
const (
	ToBroker Way = 1 << iota
	ToWorker

	Both = ToBroker | ToWorker
)

// Net is the network of one worker, or of several that share its fate: a link to each broker. Its methods may be called
// from any goroutine. Those that take brokers mean the given ones, counted from 0, or all when none is given.
type Net struct {
	links []*link
	stop  context.CancelFunc
	wg    sync.WaitGroup

	// changing lets one fault be made at a time. It is held over listening and closing on the loopback, which do not wait.
	changing sync.Mutex
	closed   bool            // under changing
	ended    <-chan struct{} // under changing; the end of what Forward began

	mu struct {
		sync.Mutex
		armed []*Armed
	}
}

// Open takes one port of the loopback for each of n brokers. Connections are refused until [Net.Forward].
func Open(n int) (*Net, error) {
	out := &Net{stop: func() {}}
	for range n {
		l, err := newLink(out)
		if err != nil {
			return nil, errors.Join(err, out.Close())
		}
		out.links = append(out.links, l)
	}
	return out, nil
}

// Addrs are the addresses to advertise, host:port, one per broker.
func (n *Net) Addrs() []string {
	addrs := make([]string, len(n.links))
	for i, l := range n.links {
		addrs[i] = l.addr
	}
	return addrs
}

// Forward begins to pass connections on to the brokers' listeners, in the order of [Net.Addrs]. It is called once; what it
// begins ends with ctx or [Net.Close].
func (n *Net) Forward(ctx context.Context, targets []string) error {
	if len(targets) != len(n.links) {
		return fmt.Errorf("forward to %d brokers: the net has %d links", len(targets), len(n.links))
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	ctx, n.stop = context.WithCancel(ctx)
	n.ended = ctx.Done()
	for i, target := range targets {
		l := n.links[i]
		l.target = target
		n.wg.Go(func() { l.serve(ctx) })
	}
	return n.openLocked(n.links)
}

// Cut ends all connections at once and refuses new ones until [Net.Heal].
func (n *Net) Cut(brokers ...int) {
	n.changing.Lock()
	defer n.changing.Unlock()
	for _, l := range n.pick(brokers) {
		l.refuse()
		l.reset()
	}
}

// Reset ends all connections at once; new ones are welcome.
func (n *Net) Reset(brokers ...int) {
	for _, l := range n.pick(brokers) {
		l.reset()
	}
}

// Stall lets nothing pass any more in the given direction, until [Net.Heal]. Nobody is told: what is sent waits, as
// packets do that are lost and sent again, and so does the news that one side has closed a connection. A new connection
// is taken, and reaches its broker when the way there is free.
func (n *Net) Stall(way Way, brokers ...int) {
	for _, l := range n.pick(brokers) {
		l.change(func() { l.mu.stalled |= way })
	}
}

// Delay holds back everything that passes by at least d in each direction, until [Net.Heal]. What follows closely goes
// along with it, so that an answer takes between 2d and 4d longer.
func (n *Net) Delay(d time.Duration, brokers ...int) {
	for _, l := range n.pick(brokers) {
		l.change(func() { l.mu.delay = d })
	}
}

// Heal ends what Cut, Stall and Delay began. Triggers stay.
func (n *Net) Heal(brokers ...int) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	links := n.pick(brokers)
	for _, l := range links {
		l.change(func() { l.mu.stalled, l.mu.delay, l.mu.refused = 0, 0, false })
	}
	return n.openLocked(links)
}

// Close ends all connections and gives the ports back. It returns when nothing runs any more; after it, nothing has an
// effect.
func (n *Net) Close() error {
	n.changing.Lock()
	if n.closed {
		n.changing.Unlock()
		return nil
	}
	n.closed = true
	n.stop()
	var errs []error
	for _, l := range n.links {
		l.refuse()
		l.reset()
	}
	n.changing.Unlock()
	n.wg.Wait()
	for _, l := range n.links {
		errs = append(errs, l.release())
	}
	return errors.Join(errs...)
}

// openLocked listens on the links that refuse connections.
func (n *Net) openLocked(links []*link) error {
	for _, l := range links {
		if l.listener != nil || l.target == "" || n.closed {
			continue
		}
		listener, err := l.listen()
		if err != nil {
			return err
		}
		l.listener = listener
		select {
		case l.listeners <- listener:
		case <-n.ended:
			l.refuse()
		}
	}
	return nil
}

func (n *Net) pick(brokers []int) []*link {
	if len(brokers) == 0 {
		return n.links
	}
	var out []*link
	for i, l := range n.links {
		if slices.Contains(brokers, i) {
			out = append(out, l)
		}
	}
	return out
}
