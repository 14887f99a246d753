package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/netcut"
)

// letter is what a dead letter says.
type letter struct {
	Reason, Key, Value, Position string
	Kept                         []string
}

func (b *bed) deadLetters() []letter {
	var out []letter
	for _, r := range b.read(b.letters.Name) {
		l := letter{Key: string(r.Key), Value: string(r.Value)}
		if r.Key == nil {
			l.Key = "<nil>"
		}
		if r.Value == nil {
			l.Value = "<nil>"
		}
		own := map[string]string{}
		for _, h := range r.Headers {
			if strings.HasPrefix(h.Key, "lathe_") {
				own[h.Key] = string(h.Value)
			} else {
				l.Kept = append(l.Kept, h.Key+"="+string(h.Value))
			}
		}
		l.Reason = own["lathe_reason"]
		l.Position = own["lathe_topic"] + "/" + own["lathe_partition"] + "/" + own["lathe_offset"]
		if own["lathe_at"] == "" || own["lathe_detail"] == "" {
			b.t.Errorf("dead letter %s has no time or no detail", l.Position)
		}
		out = append(out, l)
	}
	return out
}

func deadLetters(b *bed) {
	s := sessionOn(0, 1)
	value := string(turn(s, "t").Value)
	elsewhere := sessionOn(1, 1)
	foreign := string(turn(elsewhere, "t").Value)
	records := []struct {
		rec    *kgo.Record
		letter letter
	}{
		{&kgo.Record{Key: []byte(s)}, letter{Reason: "tombstone", Key: s, Value: "<nil>"}},
		{&kgo.Record{Value: []byte(value)}, letter{Reason: "key_mismatch", Key: "<nil>", Value: value}},
		{&kgo.Record{Key: []byte("another"), Value: []byte(value)}, letter{Reason: "key_mismatch", Key: "another", Value: value}},
		{&kgo.Record{Key: []byte(elsewhere), Value: []byte(foreign)}, letter{Reason: "partition_mismatch", Key: elsewhere, Value: foreign}},
		{&kgo.Record{Key: []byte(s), Value: []byte("{")}, letter{Reason: "undecodable", Key: s, Value: "{"}},
		{&kgo.Record{Key: []byte(s), Value: []byte{}}, letter{Reason: "undecodable", Key: s, Value: ""}},
		{&kgo.Record{Key: []byte{}, Value: []byte("\x01\x02")}, letter{Reason: "undecodable", Key: "", Value: "\x01\x02"}},
		{
			&kgo.Record{Key: []byte(s), Value: []byte("?"), Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: ""}}},
			letter{Reason: "undecodable", Key: s, Value: "?", Kept: []string{"a=1", "a=2", "="}},
		},
		{turn(s, "conflicting"), letter{Reason: "conflict", Key: s, Value: string(turn(s, "conflicting").Value)}},
	}
	var want []letter
	for i := range records {
		r := &records[i]
		r.rec.Partition = 0
		r.letter.Position = fmt.Sprintf("%s/0/%d", b.turns.Name, i)
		want = append(want, r.letter)
		b.produce(r.rec)
	}
	b.produce(turn(s, "good"))
	lost := atomic.Int32{}
	b.wires.BreakAt(func(key kmsg.Key) netcut.Cut { // The first answer to an EndTxn is lost: letter and offset are decided together.
		if key == kmsg.EndTxn && lost.Add(1) == 3 {
			return netcut.CutAnswer
		}
		return netcut.CutNothing
	})
	p := b.start(handling(&echo{on: func(_ context.Context, _ *Assignment, rec *Record) error {
		if rec.Event.TurnID == "conflicting" {
			return schemas.Errorf(schemas.CodeConflict, "another payload came under this id")
		}
		return nil
	}}))
	b.handled()
	if diff := cmp.Diff(want, b.byOffset(b.deadLetters())); diff != "" {
		b.t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	var got []string
	for _, values := range b.outputs() {
		got = append(got, values...)
	}
	for _, part := range []string{"good 1", "rejected conflicting conflict", "rejected t key_mismatch"} {
		if !contains(got, part) {
			b.t.Errorf("outputs %q lack %q", got, part)
		}
	}
	p.end()
}

// byOffset sorts dead letters by where they came from: those of different keys may lie on different partitions.
func (*bed) byOffset(letters []letter) []letter {
	out := make([]letter, len(letters))
	for _, l := range letters {
		var i int
		if _, err := fmt.Sscanf(l.Position[strings.LastIndex(l.Position, "/")+1:], "%d", &i); err == nil && i < len(out) {
			out[i] = l
		}
	}
	return out
}

// lone sends a turn that names no session, and one that names its own id.
func lone(b *bed) {
	s := sessionOn(0, 1)
	alone, named := turn(s, s), turn(s, s)
	alone.Value = fmt.Appendf(nil, `{"turn_id":%q,"messages":[{"role":"user","content":"hello"}]}`, s)
	b.produce(alone, named)
	p := b.start(handling(&echo{value: func(rec *Record) []byte { return fmt.Appendf(nil, " %v", rec.Lone) }}))
	b.handled()
	if got := b.outputs()[s]; len(got) != 1 || got[0] != s+" 1 true" { // To the echo, which looks at no payload, the second is a repeat.
		b.t.Errorf("outputs %q", got)
	}
	p.end()
}

// oddRecords sends what is too large, and random bytes.
func oddRecords(b *bed) {
	s := sessionOn(2, 1)
	big := turn(s, "big")
	big.Value = append(big.Value, make([]byte, 2<<20)...)
	headers := turn(s, "headers")
	headers.Value = []byte("?")
	headers.Headers = []kgo.RecordHeader{{Key: "large", Value: make([]byte, 1<<20)}}
	b.produce(big, headers)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		junk := make([]byte, rnd.IntN(300))
		for i := range junk {
			junk[i] = byte(rnd.IntN(256))
		}
		b.produce(&kgo.Record{Key: []byte(s), Value: junk, Partition: 2})
	}
	b.produce(turn(s, "good"))
	p := b.start()
	b.handled()
	letters := b.read(b.letters.Name)
	if len(letters) != 52 {
		b.t.Fatalf("%d dead letters, want 52", len(letters))
	}
	cutOnes := map[string]int{}
	for _, r := range letters {
		own := map[string]string{}
		for _, h := range r.Headers {
			own[h.Key] = string(h.Value)
		}
		if own[headerCut] != "" {
			cutOnes[own[headerReason]+" "+own[headerValueBytes]] = len(r.Value)
			if len(own[headerValueSHA256]) != 64 {
				b.t.Errorf("hash %q", own[headerValueSHA256])
			}
		}
	}
	want := map[string]int{fmt.Sprintf("too_large %d", len(big.Value)): cutValue, "too_large 1": 1}
	if diff := cmp.Diff(want, cutOnes); diff != "" {
		b.t.Errorf("dead letters that were cut (-want +got):\n%s", diff)
	}
	if got := b.outputs()[s]; !contains(got, "good 1") {
		b.t.Errorf("outputs %q", got)
	}
	p.end()
}
