package consumer

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/lathe-run/lathe/test/netcut"
)

// fake is a cluster inside the bubble of a test.
type fake struct {
	*bed

	cluster *kfake.Cluster
}

func newFake(t *testing.T, brokers, version int) *fake {
	t.Helper()
	network := &kfake.VirtualNetwork{}
	opts := []kfake.Opt{
		kfake.NumBrokers(brokers), kfake.ListenFn(network.Listen), kfake.Ports([]int{9092, 9093, 9094}[:brokers]...),
		kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}),
	}
	if version < 2 {
		opts = append(opts, kfake.MaxVersions(kversion.V3_9_0()))
	}
	cluster, err := kfake.NewCluster(opts...)
	must(t, err)
	t.Cleanup(cluster.Close)
	w := &netcut.Wires{Through: network.DialContext}
	b := newBed(t, "bed", version, w, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(w.Dial))
	return &fake{bed: b, cluster: cluster}
}

func TestWorker_KeepsItsPromisesOnTheFakeBroker(t *testing.T) {
	t.Parallel()
	for _, cluster := range []struct {
		name             string
		brokers, version int
	}{
		{"one broker", 1, 2},
		{"three brokers", 3, 2},
		{"transaction version 1", 3, 1},
	} {
		for _, tc := range core {
			t.Run(cluster.name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					tc.test(newFake(t, cluster.brokers, cluster.version).bed)
				})
			})
		}
	}
}
