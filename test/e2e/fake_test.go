//go:build !kafka

package e2e_test

import (
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// runTests runs more tests at a time than there are processors: they mostly wait for a process to start, or for a session to end.
func runTests(m *testing.M) int {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set("6"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if c, err := fakeCluster(); err == nil {
		c.Close()
	}
	return code
}

// fakeCluster is shared by all tests of this process; each has topics and a group of its own.
var fakeCluster = sync.OnceValues(func() (*kfake.Cluster, error) {
	return kfake.NewCluster(
		kfake.NumBrokers(3), kfake.GroupMinSessionTimeout(time.Second),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	)
})

// newCluster returns the brokers that the tests without a tag run on.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := fakeCluster()
	if err != nil {
		t.Fatalf("start the embedded broker: %v", err)
	}
	return &cluster{addrs: c.ListenAddrs()}
}
