package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-run/lathe/internal/consumer"
)

// A suspect on its last start is alone on probation, and comes after all that are not.
func TestProbation_GivesALastStartOnlyToASuspectThatIsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProbation()
		in := make(chan string, 8)
		enter := func(name string, last bool) func() {
			var leave func()
			go func() {
				var err error
				if leave, err = p.enter(t.Context(), nil, last); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				in <- name
			}()
			synctest.Wait()
			return func() { leave() }
		}
		want := func(names ...string) {
			t.Helper()
			synctest.Wait()
			for _, name := range names {
				select {
				case got := <-in:
					if got != name {
						t.Fatalf("%s is in, want %s", got, name)
					}
				default:
					t.Fatalf("%s is not in", name)
				}
			}
			if len(in) > 0 {
				t.Fatalf("%s is in, want none", <-in)
			}
		}
		second, other := enter("second", false), enter("other", false)
		want("second", "other")
		last, later := enter("last", true), enter("later", true)
		want()
		second()
		second() // Twice is once.
		want()
		other()
		synctest.Wait()
		first := <-in // Either of the two.
		if first == "later" {
			last, later = later, last
		}
		want()
		late := enter("late", false)
		want()
		last() // It goes before the other last start, which waits for longer.
		want("late")
		late()
		synctest.Wait()
		if got := <-in; got == first {
			t.Errorf("%s is in twice", got)
		}
		later()
	})
}

func TestProbation_IsOverWhenATurnTakesLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProbation()
		if _, err := p.enter(t.Context(), nil, true); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		leave, err := p.enter(t.Context(), nil, true)
		if err != nil || time.Since(began) != probationLimit {
			t.Errorf("the next is in after %s: %v, want %s", time.Since(began), err, probationLimit)
		}
		leave()
	})
}

func TestProbation_IsNotWaitedForWhenTheTurnIsStopped(t *testing.T) {
	t.Parallel()
	stop := errors.New("the turn was cancelled")
	for _, last := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newProbation()
			leave, err := p.enter(t.Context(), nil, true)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(stop) })
			if _, err := p.enter(ctx, nil, last); !errors.Is(err, stop) {
				t.Errorf("the wait of a cancelled turn gives %v", err)
			}
			draining := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(draining) })
			if _, err := p.enter(t.Context(), draining, last); !errors.Is(err, consumer.ErrDraining) {
				t.Errorf("the wait of a drained turn gives %v", err)
			}
			leave()
			if leave, err = p.enter(t.Context(), nil, true); err != nil { // Nobody is counted who gave up.
				t.Fatal(err)
			}
			leave()
		})
	}
}
