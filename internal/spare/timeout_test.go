package spare

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

var errSlow = errors.New("too slow")

type valueKey struct{}

func timeoutOf(parent context.Context, after time.Duration) *Timeout {
	t := &Timeout{}
	t.Set(parent, after, errSlow)
	return t
}

func TestTimeout_EndsWithItsCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := timeoutOf(t.Context(), time.Minute)
		defer c.Cancel()
		if c.Err() != nil || context.Cause(c) != nil {
			t.Errorf("it begins with %v", c.Err())
		}
		began := time.Now()
		<-c.Done()
		if !errors.Is(c.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(c), errSlow) || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v, because of %v", time.Since(began), c.Err(), context.Cause(c))
		}
		late := timeoutOf(t.Context(), time.Minute) // Asked for the first time when all is over.
		defer late.Cancel()
		time.Sleep(2 * time.Minute)
		if !errors.Is(context.Cause(late), errSlow) {
			t.Errorf("asked late it says %v", context.Cause(late))
		}
	})
}

//nolint:paralleltest // It counts goroutines.
func TestTimeout_EndsWithItsParentAndItsChildrenWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the turn is over")
		parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "v"))
		c := timeoutOf(parent, time.Minute)
		defer c.Cancel()
		if c.Value(valueKey{}) != "v" {
			t.Error("it does not have its parent's values")
		}
		before := runtime.NumGoroutine()
		child, stop := context.WithTimeout(c, time.Hour)
		defer stop()
		const others = 100
		for range others {
			_, stop := context.WithTimeout(c, time.Hour)
			defer stop()
		}
		if n := runtime.NumGoroutine(); n > before+others/2 {
			t.Errorf("%d children cost %d goroutines", others+1, n-before)
		}
		cancel(why)
		if !errors.Is(context.Cause(child), why) || !errors.Is(context.Cause(c), why) || c.Value(valueKey{}) != "v" {
			t.Errorf("the child ended because of %v, it because of %v", context.Cause(child), context.Cause(c))
		}
	})
}

func TestTimeout_StaysCancelled(t *testing.T) {
	t.Parallel()
	asked, unasked := timeoutOf(t.Context(), time.Hour), timeoutOf(t.Context(), time.Hour)
	done := asked.Done()
	asked.Cancel()
	unasked.Cancel()
	<-done
	if !errors.Is(asked.Err(), context.Canceled) || !errors.Is(unasked.Err(), context.Canceled) {
		t.Errorf("cancelled, they say %v and %v", asked.Err(), unasked.Err())
	}
}

func TestTimeout_TheEarlierDeadlineCounts(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want, _ := parent.Deadline()
	long, short := timeoutOf(parent, time.Hour), timeoutOf(parent, time.Second)
	if d, ok := long.Deadline(); !ok || !d.Equal(want) {
		t.Errorf("the deadline is %s, not the parent's %s", d, want)
	}
	if d, ok := short.Deadline(); !ok || !d.Before(want) {
		t.Errorf("the deadline is %s, not its own", d)
	}
}
