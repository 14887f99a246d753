package netcut

import (
	"errors"
	"syscall"
	"testing"
)

const produce int16 = 0

func TestTrigger_BeforeLosesTheRequest(t *testing.T) {
	t.Parallel()
	b := newBed(t, false)
	a := b.net.Arm(Trigger{Key: EndTxn, When: Before})
	w := b.connect()
	w.send(produce, 1, 10)
	w.want(1)
	b.sees(produce, 1)
	w.send(EndTxn, 2, 10)
	w.wantBroken()
	b.await("the trigger fires", a.Fired())
	again := b.connect()
	again.send(EndTxn, 3, 10)
	again.want(3) // once is enough
	b.sees(EndTxn, 3)
}

func TestTrigger_SentCutsTheWorkerWhileTheBrokerStillHandlesTheRequest(t *testing.T) {
	t.Parallel()
	b := newBed(t, true)
	a := b.net.Arm(Trigger{Key: EndTxn, When: Sent})
	w := b.connect()
	w.send(EndTxn, 1, 10)
	w.wantBroken()
	b.await("the trigger fires", a.Fired())
	b.sees(EndTxn, 1)
	select {
	case <-b.broker.closed:
		t.Error("the broker's side was cut before it had answered")
	default:
	}
	b.broker.answer <- struct{}{}
	b.await("the broker's side ends with its answer", b.broker.closed)
}

func TestTrigger_AnsweredCutsWhenTheBrokerIsDone(t *testing.T) {
	t.Parallel()
	b := newBed(t, true)
	a := b.net.Arm(Trigger{Key: EndTxn, When: Answered})
	w := b.connect()
	w.send(produce, 1, 10)
	w.send(EndTxn, 2, 10)
	b.sees(produce, 1)
	b.broker.answer <- struct{}{}
	w.want(1) // answers before it get through
	b.sees(EndTxn, 2)
	select {
	case <-a.Fired():
		t.Error("the trigger fired before the answer")
	default:
	}
	b.broker.answer <- struct{}{}
	w.wantBroken()
	b.await("the trigger fires", a.Fired())
}

func TestTrigger_SkipsAndIsDisarmed(t *testing.T) {
	t.Parallel()
	b := newBed(t, false)
	b.net.Arm(Trigger{Key: EndTxn, When: Before}).Disarm()
	b.net.Arm(Trigger{Key: EndTxn, When: Before, Skip: 2})
	w := b.connect()
	for i := range int32(2) {
		w.send(EndTxn, i, 0)
		w.want(i)
	}
	w.send(EndTxn, 2, 0)
	w.wantBroken()
}

func TestTrigger_OfAllRefusesWhatComesAfter(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]When{"before": Before, "sent": Sent, "answered": Answered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, false)
			other, w := b.connect(), b.connect()
			other.send(produce, 1, 0)
			other.want(1)
			b.sees(produce, 1)
			a := b.net.Arm(Trigger{Key: EndTxn, When: when, All: true})
			w.send(EndTxn, 2, 0)
			w.wantBroken()
			if c, err := b.dial(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a connection is %v, %v; want it refused from the moment of the cut", c, err)
			}
			b.await("the trigger fires", a.Fired())
			other.wantBroken()
			if when != Before {
				b.sees(EndTxn, 2)
			}
			b.seesNothing()
			b.must(b.net.Heal())
			again := b.connect()
			again.send(EndTxn, 3, 0)
			again.want(3)
		})
	}
}

// TestTrigger_WhoseAnswerNeverCameWaitsForTheNextRequest: the broker dies with the request.
func TestTrigger_WhoseAnswerNeverCameWaitsForTheNextRequest(t *testing.T) {
	t.Parallel()
	b := newBed(t, true)
	a := b.net.Arm(Trigger{Key: EndTxn, When: Answered})
	w := b.connect()
	w.send(EndTxn, 1, 0)
	b.sees(EndTxn, 1)
	b.net.Reset()
	w.wantBroken()
	b.broker.answer <- struct{}{} // into nothing
	again := b.connect()
	again.send(EndTxn, 2, 0)
	b.sees(EndTxn, 2)
	b.broker.answer <- struct{}{}
	again.wantBroken()
	b.await("the trigger fires", a.Fired())
}
