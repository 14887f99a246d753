package app

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// BenchmarkTurn is a whole turn without Kafka: four responses and three reading calls, accepted, run, encoded, taken into a
// batch with 255 others and settled. Once of a session, whose history is kept, and once of none.
func BenchmarkTurn(b *testing.B) {
	b.Run("session", func(b *testing.B) { benchTurns(b, true) })
	b.Run("alone", func(b *testing.B) { benchTurns(b, false) })
}

func benchTurns(b *testing.B, sessions bool) {
	b.Helper()
	telemetry, err := StartTelemetry(b.Context(), "bench", "", "bench")
	if err != nil {
		b.Fatal(err)
	}
	h := testHandler(b, telemetry)
	store, err := statestore.Open(statestore.Config{Dir: b.TempDir(), Age: dedupe.Age})
	if err != nil {
		b.Fatal(err)
	}
	state := store.Attach(0, func(bool) {})
	a := consumer.NewAssignment(consumer.Assignment{Topic: "turns", State: state}, func(context.Context) error { return nil })
	p, err := h.Open(b.Context(), a)
	if err != nil {
		b.Fatal(err)
	}
	decoder := schemas.NewDecoder(schemas.DecoderOptions{})
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	for i := range b.N {
		id := "t" + strconv.Itoa(i)
		session := ""
		if sessions {
			session = `"session_id":"` + id + `",`
		}
		value := []byte(`{"turn_id":"` + id + `",` + session + `"messages":[{"role":"user","content":"Please answer a question."}]}`)
		d, err := decoder.Decode(b.Context(), value, nil)
		if err != nil {
			b.Fatal(err)
		}
		rec := &consumer.Record{Topic: "turns", Offset: int64(i), Key: []byte(id), Event: d.Event, Hash: d.Hash, Lone: d.Lone}
		if err := p.Handle(b.Context(), rec); err != nil {
			b.Fatal(err)
		}
		if i%256 == 255 {
			benchCommit(b, store, state)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
	benchCommit(b, store, state)
	state.Detach()
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

// cpuTime is what the process has used so far: flushes and compactions, the collector's work, the kernel's.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchCommit(b *testing.B, store *statestore.Store, state *statestore.Partition) {
	b.Helper()
	batch, err := state.Take(1<<30, 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	if batch == nil {
		return
	}
	batch.Waiting().Tell()
	if err := store.Commit([]statestore.Settlement{{Batch: batch, Position: statestore.Position{At: time.Now()}}}); err != nil {
		b.Fatal(err)
	}
}
