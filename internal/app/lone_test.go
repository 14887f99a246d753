package app

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// A turn that names no session leaves nothing but its turn record; one that names its own id as its session can be gone on from.
func TestHandler_KeepsNoHistoryOfATurnThatNamesNoSession(t *testing.T) {
	t.Parallel()
	store, err := statestore.Open(statestore.Config{Dir: t.TempDir(), Age: dedupe.Age})
	if err != nil {
		t.Fatal(err)
	}
	state := store.Attach(0, func(bool) {})
	p, err := testHandler(t, NoTelemetry()).Open(t.Context(), consumer.NewAssignment(consumer.Assignment{Topic: "turns", State: state}, func(context.Context) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	decoder := schemas.NewDecoder(schemas.DecoderOptions{})
	for i, session := range []string{"", `"session_id":"turn-1",`} {
		value := fmt.Appendf(nil, `{"turn_id":"turn-%d",%s"messages":[{"role":"user","content":"Please answer."}]}`, i, session)
		d, err := decoder.Decode(t.Context(), value, nil)
		if err != nil {
			t.Fatal(err)
		}
		rec := &consumer.Record{Topic: "turns", Offset: int64(i), Key: []byte(d.Event.SessionID), Event: d.Event, Hash: d.Hash, Lone: d.Lone}
		if err := p.Handle(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := state.Take(1<<30, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, r := range batch.Records {
		if r.Key[:1] == "t" || r.Key[:1] == "h" {
			keys = append(keys, r.Key)
		}
	}
	slices.Sort(keys)
	if want := []string{"hturn-1/00000000/0000", "tturn-0", "tturn-1"}; !slices.Equal(keys, want) {
		t.Errorf("the turns leave %q, want %q", keys, want)
	}
	if err := store.Commit([]statestore.Settlement{{Batch: batch, Position: statestore.Position{At: time.Now()}}}); err != nil {
		t.Fatal(err)
	}
	state.Detach()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
