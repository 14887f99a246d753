package schemas

import (
	"fmt"
	"sync"
	"testing"
)

// Projections of arrays once shared the variable of their error, so that one record could be refused for the fault of
// another, or taken in spite of its own.
func TestDecode_SideBySideNoRecordGetsAnothersFault(t *testing.T) {
	t.Parallel()
	d := NewDecoder(DecoderOptions{})
	var values [2][]byte
	for i := range values {
		ev := &TurnEvent{TurnID: fmt.Sprintf("t-%d", i), Messages: []Message{{Role: "user", Text: "a"}, {Role: "user", Text: "b"}}}
		value, _, err := EncodeTurnEvent(ev, EncodingAvroSingle, EncoderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		values[i] = value
	}
	var wg sync.WaitGroup
	for i := range values {
		wg.Go(func() {
			for range 500 {
				got, err := d.Decode(t.Context(), values[i], nil)
				if want := fmt.Sprintf("t-%d", i); err != nil || got.Event.TurnID != want || len(got.Event.Messages) != 2 {
					t.Errorf("got %v, %v, want turn %s", got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}
