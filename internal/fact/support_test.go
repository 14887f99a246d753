package fact

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

func newCodec(tb testing.TB) *Codec {
	tb.Helper()
	c, err := NewCodec()
	if err != nil {
		tb.Fatalf("NewCodec: %v", err)
	}
	return c
}

func at(ms int64) time.Time { return time.UnixMilli(1_800_000_000_000 + ms).UTC() }

// everyFact has each kind of fact, with every field set, and again with as few as there can be.
func everyFact() []Fact {
	tool := Tool{Name: "files.read", Version: "2", Effect: schemas.EffectRead, Idempotency: schemas.SafeToRetry, Fingerprint: "f1"}
	call := Call{Ref: Ref{Step: 1, Position: 2}, CallID: "c-1", Tool: tool, Input: []byte(`{"a":1}`)}
	usage := schemas.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, ReasoningTokens: 5}
	return []Fact{
		&Accepted{
			TurnID: "t1", SessionID: "s1", AgentName: "support", AgentHash: []byte{1}, PayloadHash: []byte{2},
			Origin: Origin{Topic: "turns", Partition: 3, Offset: 1 << 40}, At: at(1), Deadline: at(999), Metadata: map[string]string{"k": "v"},
			Messages: []Message{
				{Role: RoleUser, Text: "hello", Parts: []schemas.Part{{Type: "json", Value: json.RawMessage(`{"x":[1,2]}`)}, {Type: "image", URL: "u", Data: "d", MediaType: "m"}}},
				{Role: RoleAssistant, Calls: []Asked{{Name: "n", CallID: "c", Arguments: []byte("{")}}, Opaque: []byte{0, 1}, Provider: "p"},
				{Role: RoleTool, CallID: "c", Tool: "n", Failed: true, Text: "no"},
			},
			Narrowed: true, Tools: []string{"a", "b"}, Scope: &schemas.Scope{PrincipalID: "p", ProjectID: "q", Permissions: []string{"tool:a"}},
			OutputSchema: []byte(`{}`), Trace: "00-1-2-01", TraceState: "a=b", Worker: "w1", OwnHistory: true,
		},
		&Responded{
			Response: Response{
				Step: 1, Text: "text", Calls: []Asked{{Name: "files_read", CallID: "c-1", Arguments: []byte(`{"a": 1}`)}}, FinishReason: "tool_call",
				Provider: "p", Model: "m", Usage: usage, CostMicros: new(int64(0)), Duration: time.Second, Opaque: []byte(`{"x":1}`),
			},
			Wave: []Call{call, call}, At: at(2), Worker: "w1",
		},
		&Began{Calls: []Call{call}, At: at(3), Worker: "w1", Again: true},
		&NotBegun{Calls: []Ref{{Step: 1, Position: 2}, {}}},
		&Finished{
			Result: Result{
				Ref: Ref{Step: 1, Position: 2}, CallID: "c-1", Tool: tool, Status: "error", Code: "tool_error", Message: "m", Output: []byte(`"o"`), Started: true,
				Attempts: 3, Duration: time.Minute, CostMicros: new(int64(7)), ForModel: "f", InputHash: []byte{9},
			},
			At: at(4), Worker: "w2",
		},
		&Cancelled{Reason: "changed my mind", At: at(5)},
		&Restarted{Start: 2, At: at(7), Worker: "w2"},
		&Ended{
			Status: "failed", Code: "limit_exceeded", Message: "m", Output: []byte(`"partial"`), Usage: usage, CostMicros: new(int64(12)), Steps: 1,
			ToolCalls: 2, Duration: time.Hour, Workers: 2, At: at(6), Worker: "w2",
		},
		&Accepted{}, &Responded{}, &Began{}, &NotBegun{}, &Finished{}, &Cancelled{}, &Restarted{}, &Ended{},
	}
}

// encode makes one journal record of facts.
func encode(tb testing.TB, c *Codec, facts []Fact) []byte {
	tb.Helper()
	var b []byte
	var err error
	seq := int64(0)
	for _, f := range facts {
		if b, err = c.Frame(Frame{Seq: seq, Fact: f}, onto(b)); err != nil {
			tb.Fatalf("Frame(%T): %v", f, err)
		}
		seq += f.Events()
	}
	return b
}

// onto gives room behind b.
func onto(b []byte) func(int) []byte { return func(n int) []byte { return slices.Grow(b, n) } }
