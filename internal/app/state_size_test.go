package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// BenchmarkStateSize is what turns of four responses (500 bytes each) and three reading calls leave behind, ten to a session, in
// cycles of 64 turns each: bytes written to the changelog, bytes of it that are live, and bytes of files. docs/sizing.md has the
// figures.
func BenchmarkStateSize(b *testing.B) {
	for _, tc := range []struct {
		name    string
		session func(turn int) string
	}{
		{"ten turns a session", func(n int) string { return fmt.Sprintf("s%08d", n/640*64+n%64) }},
		{"a session a turn", func(n int) string { return fmt.Sprintf("s%08d", n) }},
		{"no session", func(int) string { return "" }},
	} {
		b.Run(tc.name, func(b *testing.B) { measureState(b, tc.session) })
	}
}

func measureState(b *testing.B, sessionOf func(turn int) string) {
	b.Helper()
	dir := b.TempDir()
	store, err := statestore.Open(statestore.Config{Dir: dir, Age: dedupe.Age})
	if err != nil {
		b.Fatal(err)
	}
	h := testHandler(b, NoTelemetry())
	state := store.Attach(0, func(bool) {})
	p, err := h.Open(b.Context(), consumer.NewAssignment(consumer.Assignment{Topic: "turns", State: state}, func(context.Context) error { return nil }))
	if err != nil {
		b.Fatal(err)
	}
	size := &stateSize{live: map[string]int{}}
	decoder := schemas.NewDecoder(schemas.DecoderOptions{})
	turns := 0
	for b.Loop() {
		for range 64 {
			session := sessionOf(turns)
			if session != "" {
				session = fmt.Sprintf(`"session_id":%q,`, session)
			}
			value := fmt.Appendf(nil, `{"turn_id":"turn-%08d",%s"messages":[{"role":"user","content":"Please answer a question."}]}`, turns, session)
			d, err := decoder.Decode(b.Context(), value, nil)
			if err != nil {
				b.Fatal(err)
			}
			rec := &consumer.Record{Topic: "turns", Offset: int64(turns), Key: []byte(d.Event.SessionID), Event: d.Event, Hash: d.Hash, Lone: d.Lone, Timestamp: time.Now()}
			if err := p.Handle(b.Context(), rec); err != nil {
				b.Fatal(err)
			}
			turns++
		}
		size.commit(b, store, state)
	}
	state.Detach()
	per := func(n int) float64 { return float64(n) / float64(turns) }
	b.ReportMetric(per(size.written), "changelog-B/turn")
	b.ReportMetric(per(size.of("t")), "record-B/turn")
	b.ReportMetric(per(size.of("h")), "history-B/turn")
	b.ReportMetric(per(folderSize(b, dir)), "files-B/turn")
	b.ReportMetric(0, "ns/op")
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

// stateSize adds up what is written, and keeps the sizes of what is live.
type stateSize struct {
	written int
	live    map[string]int
}

func (s *stateSize) commit(b *testing.B, store *statestore.Store, state *statestore.Partition) {
	b.Helper()
	batch, err := state.Take(1<<30, 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range batch.Records {
		n := len(r.Key) + len(r.Value)
		s.written += n
		if s.live[r.Key] = n; r.Value == nil {
			delete(s.live, r.Key)
		}
	}
	batch.Waiting().Tell()
	if err := store.Commit([]statestore.Settlement{{Batch: batch, Position: statestore.Position{ChangelogNext: int64(s.written)}}}); err != nil {
		b.Fatal(err)
	}
}

func (s *stateSize) of(kind string) int {
	n := 0
	for key, size := range s.live {
		if key[:1] == kind {
			n += size
		}
	}
	return n
}

// folderSize is the size of tables and of the files of their long values; Pebble keeps its log's files for reuse, whatever is in them.
func folderSize(b *testing.B, dir string) int {
	b.Helper()
	n := 0
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		b.Fatal(err)
	}
	values, err := filepath.Glob(filepath.Join(dir, "*.blob"))
	if err != nil {
		b.Fatal(err)
	}
	for _, table := range append(tables, values...) {
		info, err := os.Stat(table)
		if err != nil {
			b.Fatal(err)
		}
		n += int(info.Size())
	}
	return n
}
