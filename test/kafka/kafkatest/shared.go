package kafkatest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Environment of a cluster that is already there.
const (
	// EnvBrokers holds the addresses of an existing cluster, host:port with commas between; nothing is started then.
	EnvBrokers = "LATHE_TEST_BROKERS"
	// EnvBrokerPIDs holds the process ids of its brokers if they run on this machine, with commas between.
	EnvBrokerPIDs = "LATHE_TEST_BROKER_PIDS"
)

// sharedClusters are the clusters of this process by number of brokers. Tests of one process share them because a
// cluster takes seconds to start; that needs a place outside any test.
//
//nolint:gochecknoglobals // see above
var sharedClusters struct {
	sync.Mutex
	byBrokers map[int]*Cluster
}

// Shared returns the cluster of n brokers that all tests of this process share, started by the first of them, or the
// one that LATHE_TEST_BROKERS names. It fails the test if there is no Java or Maven, and skips it only when the named
// cluster has fewer than n brokers.
//
// Name topics, groups and transactional ids with [Name], since other tests use the same cluster. Its brokers die with
// the process; [Main] deletes their data too.
func Shared(tb testing.TB, n int) *Cluster {
	tb.Helper()
	if addrs := os.Getenv(EnvBrokers); addrs != "" {
		return external(tb, n, addrs)
	}
	sharedClusters.Lock()
	defer sharedClusters.Unlock()
	if c := sharedClusters.byBrokers[n]; c != nil {
		return c
	}
	c, err := Start(context.WithoutCancel(tb.Context()), Config{Brokers: n})
	if err != nil {
		tb.Fatalf("start the shared cluster of %d: %v", n, err)
	}
	if sharedClusters.byBrokers == nil {
		sharedClusters.byBrokers = map[int]*Cluster{}
	}
	sharedClusters.byBrokers[n] = c
	return c
}

// Private starts a cluster for one test, which may break it, and stops it at its end. It skips the test when
// LATHE_TEST_BROKERS names a cluster: then none is started.
func Private(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	if os.Getenv(EnvBrokers) != "" {
		tb.Skipf("needs a cluster of its own, and %s forbids to start one", EnvBrokers)
	}
	c, err := Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("start a cluster: %v", err)
	}
	tb.Cleanup(c.Stop)
	return c
}

// Main runs the tests of a package and stops the shared clusters after them; use it in TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	StopShared()
	return code
}

// StopShared stops the clusters that [Shared] started.
func StopShared() {
	sharedClusters.Lock()
	defer sharedClusters.Unlock()
	for _, c := range sharedClusters.byBrokers {
		c.Stop()
	}
	clear(sharedClusters.byBrokers)
}

func external(tb testing.TB, n int, addrs string) *Cluster {
	tb.Helper()
	c := &Cluster{addrs: strings.Split(addrs, ",")}
	for field := range strings.SplitSeq(os.Getenv(EnvBrokerPIDs), ",") {
		if pid, err := strconv.Atoi(field); err == nil {
			c.pids = append(c.pids, pid)
		}
	}
	size, err := c.size(tb.Context())
	if err != nil {
		tb.Fatalf("reach the cluster that %s names: %v", EnvBrokers, err)
	}
	if size < n {
		tb.Skipf("needs %d brokers, the cluster that %s names has %d", n, EnvBrokers, size)
	}
	return c
}

// size is the number of brokers in the metadata.
func (c *Cluster) size(ctx context.Context) (int, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.DisableClientMetrics())
	if err != nil {
		return 0, fmt.Errorf("make a client: %w", err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
	if err != nil {
		return 0, fmt.Errorf("read the metadata: %w", err)
	}
	return len(meta.Brokers), nil
}
