package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestWorker_OutlivesErrorsThatSayNothing: UNKNOWN_SERVER_ERROR is what a broker answers to whatever goes wrong within itself, and is
// not among the errors that clients call retriable. One of them used to halt its partition for good.
func TestWorker_OutlivesErrorsThatSayNothing(t *testing.T) {
	t.Parallel()
	for _, key := range []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch, kmsg.OffsetFetch, kmsg.Metadata} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				disk := vfs.NewMem()
				p := f.start(onDisk(disk)).running(bedPartitions)
				f.load(40, 8)
				f.handled()
				p.kill()
				met := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.UnknownServerError, Count: 6})
				p = f.start(onDisk(disk))
				f.load(40, 8)
				p.running(bedPartitions)
				f.handled()
				if met.Hits() == 0 {
					f.t.Error("the fault was never met")
				}
				f.exactlyOnce(8)
				p.end()
				p.stateIsTheChangelog()
			})
		})
	}
}

// TestWorker_DrainsOnceForAllWhoAsk stops the worker while a rebalance drains the same partitions. The second of the two used to wait
// in a lock that the first held over its whole drain.
func TestWorker_DrainsOnceForAllWhoAsk(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		slow := &echo{on: func(ctx context.Context, _ *Assignment, _ *Record) error {
			return sleep(ctx, 200*time.Millisecond)
		}}
		first := f.start(handling(slow)).running(bedPartitions)
		f.load(40, 8)
		<-time.After(100 * time.Millisecond)
		second := f.start()
		<-time.After(500 * time.Millisecond)
		first.drain()
		second.running(bedPartitions)
		f.handled()
		f.exactlyOnce(8)
		second.end()
	})
}
