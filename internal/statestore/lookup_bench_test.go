package statestore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	storedTurns = 200_000
	cycleTurns  = 256
)

// BenchmarkLookUp is what a turn looks up that is new, as is its session: its record, and what the session said. 200,000 turns are in the
// store, and more are committed in cycles of 256 that are not timed, so that tables are written and compacted meanwhile. Run it with
// -benchtime 400x; an operation is the look-ups of one cycle.
func BenchmarkLookUp(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir() + "/state"})
	if err != nil {
		b.Fatal(err)
	}
	p := attach(s, 1)
	l := &load{rng: rand.New(rand.NewPCG(1, 2)), said: make([]byte, 4000)}
	for i := range l.said {
		l.said[i] = "etaoin shrdlu"[l.rng.IntN(13)]
	}
	l.said[0] = Format
	for l.turns < storedTurns {
		l.cycle(b, s, p)
	}
	var get, scan time.Duration
	for b.Loop() {
		start := time.Now()
		for range cycleTurns {
			if _, found, err := p.Get(fmt.Sprintf("t%032x", l.rng.Uint64())); err != nil || found {
				b.Fatal(found, err)
			}
		}
		between := time.Now()
		for range cycleTurns {
			err := p.Scan(fmt.Sprintf("hsession-%016x/", l.rng.Uint64()), func(string, []byte) error { b.Fatal("found"); return nil })
			if err != nil {
				b.Fatal(err)
			}
		}
		get, scan = get+between.Sub(start), scan+time.Since(between)
		b.StopTimer()
		l.cycle(b, s, p)
		b.StartTimer()
	}
	b.ReportMetric(float64(get.Nanoseconds())/float64(b.N*cycleTurns), "ns/get")
	b.ReportMetric(float64(scan.Nanoseconds())/float64(b.N*cycleTurns), "ns/scan")
	if testing.Verbose() {
		b.Log(s.db.Metrics().String())
	}
	p.Detach()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// load commits turns with random ids, each of a session of its own.
type load struct {
	rng   *rand.Rand
	said  []byte
	turns int
}

func (l *load) cycle(b *testing.B, s *Store, p *Partition) {
	b.Helper()
	record := make([]byte, 43)
	record[0] = Format
	for range cycleTurns {
		l.turns++
		add(b, p, &Effect{Mutations: []Mutation{
			{Op: OpSet, Key: fmt.Sprintf("t%032x", l.rng.Uint64()), Value: record},
			{Op: OpSet, Key: fmt.Sprintf("hsession-%016x/%08x/0000", l.rng.Uint64(), l.turns), Value: l.said[:400+l.rng.IntN(3600)]},
		}, Offset: int64(l.turns), Urgent: true})
	}
	commit(b, s, take(b, p), Position{ChangelogNext: int64(l.turns)})
}
