package txn

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
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
	}
	if version < 2 {
		opts = append(opts, kfake.MaxVersions(kversion.V3_9_0()))
	}
	cluster, err := kfake.NewCluster(opts...)
	must(t, err)
	t.Cleanup(cluster.Close)
	w := newWires(network.DialContext)
	b := newBed(t, version, "bed", w, nil, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(w.Dial))
	// The race detector makes the tables of LZ4 very slow; a real broker gets them.
	b.last = func() []kgo.Opt {
		return []kgo.Opt{kgo.WithCompressor(nil), kgo.ProducerBatchCompression(kgo.NoCompression())}
	}
	return &fake{bed: b, cluster: cluster}
}

func TestRing_KeepsItsPromisesOnTheFakeBroker(t *testing.T) {
	t.Parallel()
	for _, cluster := range []struct {
		name             string
		brokers, version int
	}{
		{"one broker", 1, 2},
		{"three brokers", 3, 2},
		{"transaction.version 1", 3, 1},
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
