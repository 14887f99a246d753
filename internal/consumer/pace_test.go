package consumer

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacer_NoMoreComputeThanFitAndWaitingCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer()
		var computing, most, waiting, mostWaiting atomic.Int64
		var wg sync.WaitGroup
		raise := func(to *atomic.Int64, n int64) {
			for was := to.Load(); n > was && !to.CompareAndSwap(was, n); was = to.Load() {
				continue
			}
		}
		compute := func() {
			raise(&most, computing.Add(1))
			runtime.Gosched()
			computing.Add(-1)
		}
		for range 100 {
			wg.Go(func() {
				p.work(func() {
					compute()
					p.wait(func() {
						raise(&mostWaiting, waiting.Add(1))
						time.Sleep(time.Second)
						waiting.Add(-1)
					})
					compute()
				})
			})
		}
		wg.Wait()
		if got, limit := most.Load(), int64(runtime.GOMAXPROCS(0)); got > limit {
			t.Errorf("%d computed at once, want at most %d", got, limit)
		}
		if mostWaiting.Load() != 100 {
			t.Errorf("%d waited at once, want all 100", mostWaiting.Load())
		}
		if p.mu.free != runtime.GOMAXPROCS(0) {
			t.Errorf("%d places are free in the end, want all", p.mu.free)
		}
	})
}

func TestPacer_WhoGoesOnComesBeforeWhoBegins(t *testing.T) {
	t.Parallel()
	p := &pacer{}
	p.mu.free = 1
	order := make(chan string, 2)
	p.enter(&p.mu.begin)
	var wg sync.WaitGroup
	queued := func(q *[]chan struct{}) {
		for {
			p.mu.Lock()
			n := len(*q)
			p.mu.Unlock()
			if n == 1 {
				return
			}
			runtime.Gosched()
		}
	}
	wg.Go(func() { p.work(func() { order <- "begins" }) })
	queued(&p.mu.begin)
	wg.Go(func() {
		p.enter(&p.mu.again)
		order <- "goes on"
		p.leave()
	})
	queued(&p.mu.again)
	p.leave()
	wg.Wait()
	if first := <-order; first != "goes on" {
		t.Errorf("first came who %s", first)
	}
}
