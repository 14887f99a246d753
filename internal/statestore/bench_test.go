package statestore

import (
	"fmt"
	"testing"
)

// BenchmarkCycle is what a cycle of short turns costs the store: each turn adds its facts to a journal in four effects, the last
// of which drops it and leaves a turn record and a history record.
func BenchmarkCycle(b *testing.B) {
	for _, turns := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("%d turns", turns), func(b *testing.B) {
			s := openStore(b, Config{})
			p := attach(s, 1)
			frame, event := make([]byte, 300), make([]byte, 500)
			record, transcript := make([]byte, 43), make([]byte, 2000)
			record[0], transcript[0] = Format, Format
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for range turns {
					n++
					addTurn(b, p, n, frame, event, record, transcript)
				}
				commit(b, s, take(b, p), Position{ChangelogNext: int64(n)})
			}
			b.ReportMetric(float64(turns)*float64(b.N)/b.Elapsed().Seconds(), "turns/s")
			p.Detach()
		})
	}
}

func addTurn(b *testing.B, p *Partition, n int, frame, event, record, transcript []byte) {
	b.Helper()
	journal := fmt.Sprintf("jturn-%08d", n)
	outputs := func() []Output {
		return []Output{{Topic: "events", Value: event}, {Topic: "events", Value: event}, {Topic: "events", Value: event}}
	}
	if _, err := p.Log(journal); err != nil {
		b.Fatal(err)
	}
	for range 3 {
		add(b, p, &Effect{Mutations: []Mutation{{Op: OpAppend, Key: journal, Value: frame}, {Op: OpAppend, Key: journal, Value: frame}}, Outputs: outputs(), Offset: NoOffset})
	}
	add(b, p, &Effect{Mutations: []Mutation{
		{Op: OpDrop, Key: journal},
		{Op: OpSet, Key: fmt.Sprintf("tturn-%08d", n), Value: record},
		{Op: OpSet, Key: fmt.Sprintf("hsession-%04d/%08x/0000", n%1000, n), Value: transcript},
	}, Outputs: outputs(), Offset: int64(n), Urgent: true})
}

func BenchmarkGet(b *testing.B) {
	s := openStore(b, Config{})
	p := attach(s, 1)
	for i := range 10_000 {
		add(b, p, effect(set(fmt.Sprintf("t%08d", i), "v")))
	}
	commitAll(b, s, p)
	for _, key := range []string{"t00005000", "tmissing"} {
		b.Run(key, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := p.Get(key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	p.Detach()
}
