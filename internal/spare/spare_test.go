package spare_test

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lathe-run/lathe/internal/spare"
)

func TestGoroutines_RunEveryTask(t *testing.T) {
	t.Parallel()
	g := spare.Goroutines{Keep: 4}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ran := 0
	for range 1000 {
		wg.Add(1)
		g.Go(func() {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			ran++
		})
	}
	wg.Wait()
	g.Close()
	g.Wait()
	if ran != 1000 {
		t.Errorf("%d tasks of 1000 ran", ran)
	}
}

func TestGoroutines_AreUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := spare.Goroutines{Keep: 2}
		seen := make(map[string]bool)
		for range 10 {
			id := make(chan string, 1)
			g.Go(func() { id <- goroutine() })
			seen[<-id] = true
			synctest.Wait() // It is idle again.
		}
		if len(seen) != 1 {
			t.Errorf("ten tasks one after another had %d goroutines, want 1", len(seen))
		}
		g.Close()
		g.Wait()
	})
}

// goroutine is the first line of the caller's stack without its state: "goroutine 7".
func goroutine() string {
	b := make([]byte, 64)
	line, _, _ := bytes.Cut(b[:runtime.Stack(b, false)], []byte(" ["))
	return string(line)
}

func TestGoroutines_OutliveATaskThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	g := spare.Goroutines{Keep: 1}
	for range 3 {
		done := make(chan struct{})
		g.Go(func() {
			defer close(done)
			runtime.Goexit()
		})
		<-done
	}
	done := make(chan struct{})
	g.Go(func() { close(done) })
	<-done
	g.Close()
	g.Wait()
}
