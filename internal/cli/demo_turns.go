package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/schemas"
)

// demoTurn is one record that the demo sends, and how it is to end.
type demoTurn struct {
	event schemas.TurnEvent
	// raw is sent instead of the event when it is not empty.
	raw string
	// status is the turn's status in the end; empty for records that start no turn of their own.
	status string
	// what it shows.
	what string
}

func userTurn(id, session, text, status, what string) demoTurn {
	return demoTurn{
		event:  schemas.TurnEvent{TurnID: id, SessionID: session, Messages: []schemas.Message{{Role: "user", Text: text}}},
		status: status, what: what,
	}
}

// killedTurn is the one during whose refund the worker is killed.
const killedTurn = "demo-killed"

// demoTurns are what the demo sends, in order.
func demoTurns() []demoTurn {
	first := userTurn("demo-lookup", "ann", "Where is order 1001?", schemas.StatusCompleted, "one reading call")
	duplicate := first
	duplicate.status, duplicate.what = "", "the same record again: no event, no call"
	conflict := userTurn("demo-lookup", "ann", "Where is order 1002?", "", "the same turn_id with another payload: a dead letter")
	return []demoTurn{
		first,
		userTurn("demo-parallel", "ben", "Compare orders 1001, 1002 and 1003.", schemas.StatusCompleted, "three reading calls at once"),
		userTurn("demo-refund", "cleo", "Refund order 1002, please.", schemas.StatusCompleted, "a refund and a mail in one wave"),
		userTurn("demo-unknown", "dan", "Cancel 1001.", schemas.StatusCompleted, "a tool that does not exist"),
		userTurn("demo-timeout", "eve", "What about 9999?", schemas.StatusCompleted, "a tool that does not answer in time"),
		userTurn("demo-arguments", "fay", "Refund a lot for 1001.", schemas.StatusCompleted, "arguments that do not fit"),
		userTurn("demo-refused", "gus", "Refund 1003.", schemas.StatusCompleted, "a tool that says no"),
		duplicate,
		conflict,
		{raw: "\xff\xfe this is no turn event", what: "a record that cannot be decoded: a dead letter"},
		userTurn("demo-session-1", "hal", "Has order 1001 been delivered?", schemas.StatusCompleted, "first turn of a session"),
		userTurn("demo-session-2", "hal", "Are you sure?", schemas.StatusCompleted, "second turn of it, after the first"),
		userTurn("demo-cancelled", "ida", "Think it over for a minute.", schemas.StatusCancelled, "a turn that is cancelled"),
		{
			event: schemas.TurnEvent{Type: schemas.InputCancel, TurnID: "demo-cancelled", SessionID: "ida", Reason: "the customer left"},
			what:  "the cancel event",
		},
		userTurn(killedTurn, "jo", "Refund order 1007.", schemas.StatusIndeterminate, "the worker is killed during its refund"),
		userTurn("demo-hello", "kim", "Hello!", schemas.StatusCompleted, "a plain answer"),
	}
}

// record is the turn as it goes on the topic.
func (t demoTurn) record(topic string) (*kgo.Record, error) {
	if t.raw != "" {
		return &kgo.Record{Topic: topic, Key: []byte("bad"), Value: []byte(t.raw)}, nil
	}
	value, err := json.Marshal(&t.event)
	if err != nil {
		return nil, fmt.Errorf("write turn %s: %w", t.event.TurnID, err)
	}
	return &kgo.Record{Topic: topic, Key: []byte(t.event.SessionID), Value: value}, nil
}

// sendDemo sends the demo's records.
func sendDemo(ctx context.Context, s *app.Settings) error {
	cl, err := clientConfig(s).NewClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, t := range demoTurns() {
		rec, err := t.record(s.Topics().Turns)
		if err != nil {
			return err
		}
		if err := cl.ProduceSync(ctx, rec).FirstErr(); err != nil {
			return fmt.Errorf("send turn %s: %w", t.event.TurnID, err)
		}
	}
	return nil
}
