package schemas

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Each limit of the decoder: what is below and at it is read, what is one above it is refused by its code and its limit.
func TestDecoder_TakesWhatIsAtALimitAndRefusesWhatIsAbove(t *testing.T) {
	t.Parallel()
	const limit = 100
	turn := func(messages string) []byte {
		return []byte(`{"turn_id":"t","messages":[` + messages + `]}`)
	}
	sized := func(n int) []byte {
		empty := len(turn(`{"role":"user","content":""}`))
		return turn(`{"role":"user","content":"` + strings.Repeat("x", n-empty) + `"}`)
	}
	nested := func(n int) []byte { // The record, its messages, a message, its content and a part are five.
		return turn(`{"role":"user","content":[{"type":"json","value":` + strings.Repeat("[", n-5) + strings.Repeat("]", n-5) + `}]}`)
	}
	messages := func(n int) []byte {
		ev := &TurnEvent{Type: InputTurn, TurnID: "t", SessionID: "t"}
		for range n {
			ev.Messages = append(ev.Messages, Message{Role: "user", Text: "x"})
		}
		value, _, err := EncodeTurnEvent(ev, EncodingAvroSingle, EncoderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	perMessage, fixed := avroValues(t, messages)
	for _, tc := range []struct {
		name   string
		opts   DecoderOptions
		record func(n int) []byte
		limit  int
		code   Code
		says   string
	}{
		{"bytes", DecoderOptions{MaxBytes: limit}, sized, limit, CodeTooLarge, fmt.Sprintf("%d bytes, more than %d", limit+1, limit)},
		{"depth of JSON", DecoderOptions{MaxDepth: 10}, nested, 10, CodeUndecodable, "10"},
		{"values in Avro", DecoderOptions{MaxValues: fixed + 7*perMessage}, messages, 7, CodeUndecodable, strconv.Itoa(fixed + 7*perMessage)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(tc.opts)
			for _, n := range []int{tc.limit - 1, tc.limit} {
				if _, err := d.Decode(t.Context(), tc.record(n), nil); err != nil {
					t.Errorf("%d of %d: %v", n, tc.limit, err)
				}
			}
			_, err := d.Decode(t.Context(), tc.record(tc.limit+1), nil)
			if e, ok := err.(*Error); !ok || e.Code != tc.code || !strings.Contains(e.Detail(), tc.says) { //nolint:errorlint // It is promised.
				t.Errorf("%d of %d: %v, want %s saying %q", tc.limit+1, tc.limit, err, tc.code, tc.says)
			}
		})
	}
}

// avroValues finds how many values a turn has in Avro, for each message and beside them.
func avroValues(t *testing.T, messages func(n int) []byte) (each, fixed int) {
	t.Helper()
	needed := func(n int) int {
		for limit := 1; ; limit++ {
			if _, err := NewDecoder(DecoderOptions{MaxValues: limit}).Decode(t.Context(), messages(n), nil); err == nil {
				return limit
			}
			if limit > 1000 {
				t.Fatal("a small turn is never within the limit")
			}
		}
	}
	one, two := needed(1), needed(2)
	return two - one, 2*one - two
}
