package turn

import (
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
)

// FuzzReplay: a journal of any facts in any order is replayed or refused.
func FuzzReplay(f *testing.F) {
	c, err := fact.NewCodec()
	if err != nil {
		f.Fatal(err)
	}
	call := fact.Call{Ref: fact.Ref{Step: 0, Position: 0}, CallID: "c", Tool: fact.Tool{Name: "x", Version: "1"}, Input: []byte(`{}`)}
	facts := []fact.Fact{
		&fact.Accepted{TurnID: "t", SessionID: "s", At: time.Unix(1, 0)},
		&fact.Responded{Response: fact.Response{Step: 0, Calls: []fact.Asked{{Name: "x", CallID: "c", Arguments: []byte(`{}`)}}}, Wave: []fact.Call{call}},
		&fact.Finished{Result: fact.Result{Ref: call.Ref, Tool: call.Tool, Status: "ok", Output: []byte(`1`)}},
		&fact.Cancelled{}, &fact.Ended{Status: "completed"},
	}
	var all []byte
	for i, one := range facts {
		frame, err := c.Frame(fact.Frame{Seq: int64(i), Fact: one}, onto(nil))
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, frame...)
		f.Add(frame)
	}
	f.Add(all)
	f.Fuzz(func(_ *testing.T, b []byte) {
		frames, err := c.Frames(b)
		if err != nil {
			return
		}
		if k, err := Replay(frames); err == nil {
			k.totals()
			k.lastText()
		}
	})
}
