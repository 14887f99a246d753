package dedupe

import (
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// sizeOf is what an output takes of the record limit.
func sizeOf(o *statestore.Output) int {
	n := len(o.Key) + len(o.Value)
	for _, h := range o.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// The record limit counts key, value and headers of an event. What is below and at it is written; what is one byte above it ends in
// an error that names event, size and limit.
func TestRecordLimit_TakesWhatIsAtItAndRefusesWhatIsAbove(t *testing.T) {
	t.Parallel()
	const limit = 4000
	// end ends a turn with an answer of n bytes, in a new bed, and gives the size of its event.
	end := func(n int) (int, error) {
		b := newBed(t, func(c *Config) { c.RecordBytes = limit })
		j := b.accept(ask("t1", "hi", 10))
		j.SetTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a="+strings.Repeat("s", 300))
		e := ended(schemas.StatusCompleted)
		e.Output = []byte(`"` + strings.Repeat("x", n-2) + `"`)
		if err := j.Add(e); err != nil {
			return 0, err
		}
		_, outputs := b.commit()
		return sizeOf(outputs[len(outputs)-1]), nil
	}
	least, err := end(2)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{limit - 1, limit} {
		if got, err := end(want - least + 2); got != want || err != nil {
			t.Errorf("an event of %d bytes has %d: %v", want, got, err)
		}
	}
	_, err = end(limit + 1 - least + 2)
	if says := "the event t1/turn:end has 4001 bytes, more than the record limit of 4000"; codeOf(err) != schemas.CodeLimitExceeded || !strings.Contains(err.Error(), says) {
		t.Errorf("one byte above: %v, want limit_exceeded and %q", err, says)
	}
}

// An agent whose configuration does not fit a record is refused before any turn of it begins.
func TestCheckAgent_RefusesWhatDoesNotFitARecord(t *testing.T) {
	t.Parallel()
	a := agent(true)
	big := newBed(t, func(c *Config) { c.RecordBytes = 1 << 20 })
	body, err := big.store.codec.agentBody(a)
	if err != nil {
		t.Fatal(err)
	}
	// The system prompt is in no event, so that turn:start fits by far.
	a.System = strings.Repeat("x", 8000)
	size := len(body.body) - len("You help.") + 8000 + 2 + 1 // a longer length and the version byte
	for limit, fits := range map[int]bool{size + 1: true, size: true, size - 1: false} {
		b := newBed(t, func(c *Config) { c.RecordBytes = limit })
		err := b.store.codec.CheckAgent(a)
		if (err == nil) != fits {
			t.Errorf("limit %d: %v", limit, err)
		}
		if err != nil && !strings.Contains(err.Error(), "agent support: its system prompt and tools take") {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	a.System = ""
	for range 100 {
		a.Tools = append(a.Tools, lookup())
	}
	enc := newBed(t, func(c *Config) { c.RecordBytes = 5000 })
	if err := enc.store.codec.CheckAgent(a); err == nil {
		t.Error("an agent with a turn:start that does not fit is taken")
	}
}
