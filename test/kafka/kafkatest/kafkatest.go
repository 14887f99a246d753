// Package kafkatest runs Apache Kafka for tests and benchmarks.
//
// It hides where Kafka comes from (Maven, once, into .kafka/ at the repository root) and how a cluster of one or three
// brokers is formatted, started, broken and stopped. A broker never outlives the process that started it.
package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// readyTimeout is how long a cluster may take until it serves groups and transactions; two busy cores need 15 s for
// three brokers.
const readyTimeout = 3 * time.Minute

// Config says which cluster to start.
type Config struct {
	// Brokers is the number of combined brokers and controllers, 1 (the default) or more.
	Brokers int
	// TransactionVersion is the level of the feature transaction.version; 0 leaves what Kafka takes itself.
	TransactionVersion int
	// Properties overrides lines of every server.properties.
	Properties map[string]string
	// Nets gives every broker further listeners, one per net, advertised under the addresses that the net has for the
	// brokers in their order: those of proxies, which pass on to [Cluster.Behind]. A client that comes through a net learns
	// no other way.
	Nets [][]string
	// Heap is the -Xmx of each broker; default 1g for one broker, 512m for several.
	Heap string
}

func (c Config) withDefaults() Config {
	if c.Brokers == 0 {
		c.Brokers = 1
	}
	if c.Heap == "" {
		c.Heap = "1g"
		if c.Brokers > 1 {
			c.Heap = "512m"
		}
	}
	return c
}

func (c Config) validate() error {
	if c.Brokers < 1 {
		return fmt.Errorf("start kafka: %d brokers asked for", c.Brokers)
	}
	for i, addrs := range c.Nets {
		if len(addrs) != c.Brokers {
			return fmt.Errorf("start kafka: net %d has %d addresses for %d brokers", i, len(addrs), c.Brokers)
		}
	}
	return nil
}

// Cluster is a running Kafka cluster, either started by this process or given from outside.
type Cluster struct {
	addrs   []string
	brokers []*broker // empty when the cluster was given from outside
	pids    []int     // of a cluster given from outside, if known
	dir     string
	lock    *os.File
	stop    sync.Once
}

// Start brings Kafka if it is not there yet, starts a cluster and returns when it serves groups and transactions.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	inst, err := install(ctx)
	if err != nil {
		return nil, err
	}
	removeStale(os.TempDir())
	// A free port may be taken by another process before the broker binds it, so a cluster whose broker died at once
	// is tried again with other ports.
	for attempt := 1; ; attempt++ {
		c, err := start(ctx, inst, cfg)
		if err == nil || attempt == 3 || !errors.Is(err, errBrokerDied) {
			return c, err
		}
	}
}

func start(ctx context.Context, inst installation, cfg Config) (*Cluster, error) {
	dir, lock, err := lockedDir(os.TempDir())
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, lock: lock}
	if err := c.launch(ctx, inst, cfg); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	return c, nil
}

func (c *Cluster) launch(ctx context.Context, inst installation, cfg Config) error {
	brokers, err := layOut(inst, c.dir, cfg)
	if err != nil {
		return err
	}
	c.brokers = brokers
	for _, b := range brokers {
		c.addrs = append(c.addrs, b.addr)
	}
	if err := forEach(brokers, func(b *broker) error { return b.format(ctx, cfg) }); err != nil {
		return err
	}
	if err := forEach(brokers, func(b *broker) error { return b.start(ctx) }); err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// Addrs returns the addresses of all brokers, host:port.
func (c *Cluster) Addrs() []string { return slices.Clone(c.addrs) }

// Behind returns where the brokers listen for a net of [Config.Nets], in the order of its addresses.
func (c *Cluster) Behind(net int) []string {
	addrs := make([]string, len(c.brokers))
	for i, b := range c.brokers {
		addrs[i] = b.nets[net]
	}
	return addrs
}

// Owned reports whether this process started the brokers and so may stop them.
func (c *Cluster) Owned() bool { return len(c.brokers) > 0 }

// PIDs returns the process ids of the running brokers, to account for their CPU and memory.
func (c *Cluster) PIDs() []int {
	if !c.Owned() {
		return slices.Clone(c.pids)
	}
	var pids []int
	for _, b := range c.brokers {
		if pid := b.pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Kill stops broker i (from 0) at once, as a crash would.
func (c *Cluster) Kill(i int) { c.brokers[i].kill() }

// Shutdown stops broker i (from 0) in good order.
func (c *Cluster) Shutdown(ctx context.Context, i int) error { return c.brokers[i].shutdown(ctx) }

// Restart starts broker i (from 0) again on its address and data, and returns when the whole cluster is ready. A broker
// that still runs is shut down first.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	b := c.brokers[i]
	if b.pid() != 0 {
		if err := b.shutdown(ctx); err != nil {
			return err
		}
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// Stop kills all brokers and deletes their data. It does nothing to a cluster given from outside.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		for _, b := range c.brokers {
			b.kill()
		}
		if c.lock == nil {
			return
		}
		_ = os.RemoveAll(c.dir)
		_ = c.lock.Close()
	})
}

// forEach runs f for all brokers at once and joins their errors.
func forEach(brokers []*broker, f func(*broker) error) error {
	errs := make([]error, len(brokers))
	var wg sync.WaitGroup
	for i, b := range brokers {
		wg.Go(func() { errs[i] = f(b) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

const dirPrefix = "lathe-kafka-"

// lockedDir makes a directory that is locked as long as this process lives, so that the next process can tell what a
// killed one has left behind.
func lockedDir(parent string) (string, *os.File, error) {
	dir, err := os.MkdirTemp(parent, dirPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", nil, fmt.Errorf("make the directory of the brokers: %w", err)
	}
	//nolint:gosec // the path is made here, not from input
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("make the lock of the brokers: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return "", nil, errors.Join(fmt.Errorf("lock the directory of the brokers: %w", err), lock.Close())
	}
	return dir, lock, nil
}

// removeStale deletes the directories of processes that were killed before they could do it.
func removeStale(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0) //nolint:gosec // a folder of this package
		if err != nil {
			continue // just being made, or not ours
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
