package tools

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// Each limit of the input and the result of a call: what is below and at it passes, what is one above it is refused with the limit
// in the message.
func TestCall_TakesWhatIsAtALimitAndRefusesWhatIsAbove(t *testing.T) {
	t.Parallel()
	text := func(n int) []byte { return []byte(`"` + strings.Repeat("x", n-2) + `"`) }
	object := func(n int) []byte { return []byte(`{"a":"` + strings.Repeat("x", n-8) + `"}`) }
	nested := func(n int) []byte { return []byte(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n)) }
	const limit = 70
	for _, tc := range []struct {
		name          string
		cfg           Config
		input, result func(n int) []byte
		code          schemas.Code
		says          string
	}{
		{"input", Config{MaxInputBytes: limit}, object, nil, schemas.CodeInvalidArguments, "$: the arguments have 71 bytes, the limit is 70"},
		{"depth of the input", Config{MaxDepth: limit}, nested, nil, schemas.CodeInvalidArguments, "$: nested more than 70 deep"},
		{"result", Config{MaxResultBytes: limit}, nil, text, schemas.CodeResultTooLarge, "the result of tool has 71 bytes, the limit is 70"},
		{"result that a record can hold", Config{MaxRecordBytes: limit}, nil, text, schemas.CodeResultTooLarge, "the result of tool has 71 bytes, the limit is 70"},
		{"depth of the result", Config{MaxDepth: limit}, nil, nested, schemas.CodeInvalidOutput, "nested more than 70 deep"},
	} {
		for n := limit - 1; n <= limit+1; n++ {
			t.Run(fmt.Sprintf("%s, %d of %d", tc.name, n, limit), func(t *testing.T) {
				t.Parallel()
				r, err := New(tc.cfg, Deps{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				answer := raw(`null`)
				if tc.result != nil {
					answer = tc.result(n)
				}
				o := reads()
				o.Input = []byte(`{"type":"object"}`)
				b := bindAll(t, r, AgentBinding{}, Define("tool", func(*Context, map[string]any) (raw, error) { return answer, nil }, o))
				input := []byte(`{}`)
				if tc.input != nil {
					input = tc.input(n)
				}
				call, refused := b.Prepare(fact.Asked{Name: "tool", CallID: "c", Arguments: input}, fact.Ref{}, b.Tools())
				got := fact.Result{Status: schemas.StatusOK}
				if refused != nil {
					got = *refused
				} else if tc.result != nil {
					got = execute(t, t.Context(), b, call)
				}
				switch {
				case n <= limit && !got.OK():
					t.Errorf("got %s, %s: %s", got.Status, got.Code, got.Message)
				case n > limit && (got.Status != schemas.StatusError || got.Code != tc.code || !strings.Contains(got.Message, tc.says)):
					t.Errorf("got %s, %s: %q; want %s saying %q", got.Status, got.Code, got.Message, tc.code, tc.says)
				}
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// raw is JSON as a tool may give it.
type raw []byte

func (r raw) MarshalJSON() ([]byte, error) { return r, nil }
