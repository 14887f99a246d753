package spare_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/internal/spare"
)

// A timer that is used again must not remember that it has fired for whoever had it before.
func TestTimers_ForgetWhoHadThemBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var timers spare.Timers
		for range 100 {
			fired := timers.Get(time.Millisecond)
			time.Sleep(2 * time.Millisecond)
			timers.Put(fired)
			again := timers.Get(time.Second)
			began := time.Now()
			select {
			case <-again.C:
				t.Fatal("a timer of a second fired at once")
			default:
			}
			<-again.C
			if d := time.Since(began); d != time.Second {
				t.Fatalf("a timer of a second fired after %s", d)
			}
			timers.Put(again)
		}
	})
}
