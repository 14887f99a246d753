package txn

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// batch counts the promises of a cycle's records. Flush alone would not do: it does not wait for the promise of a
// record that the client refused before it buffered it, and a cycle without that record must never be committed.
type batch struct {
	left atomic.Int64
	// done is closed by the last promise; every record may be read after it.
	done chan struct{}

	mu struct {
		sync.Mutex

		failed int
		record *kgo.Record
		err    error
		// refused are the records that the broker will not take, or that were in a batch with one.
		refused []*kgo.Record
	}
}

func newBatch(records int) *batch {
	b := &batch{done: make(chan struct{})}
	b.left.Store(int64(records))
	return b
}

// promise is called by the client once for each record.
func (b *batch) promise(r *kgo.Record, err error) {
	if err != nil {
		b.fail(r, err)
	}
	if b.left.Add(-1) == 0 {
		close(b.done)
	}
}

// fail keeps the first error, but for a refusal, which is for good where others may pass.
func (b *batch) fail(r *kgo.Record, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.failed++
	refused := isRefused(err)
	if refused {
		b.mu.refused = append(b.mu.refused, r)
	}
	if b.mu.err == nil || refused && len(b.mu.refused) == 1 {
		b.mu.record, b.mu.err = r, err
	}
}

// wait returns when every promise was called, with the record that failed if one did. It is called once the client has flushed.
func (b *batch) wait(ctx context.Context) (*kgo.Record, error) {
	select {
	case <-b.done:
	case <-ctx.Done():
		// What has failed so far does not matter: with records under way nothing less than a new client will do.
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.record, b.mu.err
}

// acked reports whether a broker has taken any record of n.
func (b *batch) acked(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return n-int(b.left.Load()) > b.mu.failed
}

// refusals are the records that were refused. It is called after wait.
func (b *batch) refusals() []*kgo.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.refused
}
