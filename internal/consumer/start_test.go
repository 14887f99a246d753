package consumer

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestWorker_ToldToStopWhileItStartsEndsClean holds the worker where it takes its transactional ids and tells it to stop: it has
// begun nothing, so that there is nothing to drain, and a rolling restart must not take that for a failure.
func TestWorker_ToldToStopWhileItStartsEndsClean(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		release := make(chan struct{})
		asked := make(chan struct{}, 64)
		f.cluster.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			asked <- struct{}{}
			f.cluster.SleepControl(func() {
				select {
				case <-release:
				case <-time.After(time.Hour):
				}
			})
			return nil, nil, false //nolint:nilnil // The broker answers.
		})
		p := f.start()
		<-asked
		p.stop()
		<-p.ended
		close(release)
		p.close()
		if p.err != nil {
			f.t.Errorf("a worker that was told to stop while it started ended with %v, want no error", p.err)
		}
	})
}
