package consumer

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestWorker_ToldToStopWhileItStartsEndsClean lets the worker wait for its transactional ids and tells it to stop: it has
// begun nothing, so that there is nothing to drain, and a rolling restart must not take that for a failure.
func TestWorker_ToldToStopWhileItStartsEndsClean(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		held := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ConcurrentTransactions, Count: -1})
		p := f.start()
		if err := held.Wait(f.t.Context(), 1); err != nil {
			f.t.Fatal(err)
		}
		p.stop()
		<-p.ended
		held.Remove()
		p.close()
		if p.err != nil {
			f.t.Errorf("a worker that was told to stop while it started ended with %v, want no error", p.err)
		}
	})
}
