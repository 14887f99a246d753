package dedupe

import (
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// FuzzState puts any bytes where journals, agents, histories and cancels are kept, as a changelog that somebody else has written to
// would. Whatever is read from it may be an error, never a panic.
func FuzzState(f *testing.F) {
	b := newBed(f)
	j := b.accept(ask("t1", "hello", 1))
	b.add(j, &fact.Cancelled{Reason: "no", At: at(1)})
	records, _ := b.commit()
	for _, r := range records {
		f.Add(r.Key, r.Value, uint8(0))
		f.Add(r.Key, r.Value, uint8(3))
	}
	f.Add("j", []byte{statestore.Format}, uint8(1))
	f.Add("jt1/00000000", []byte{statestore.Format, 0xff}, uint8(1))
	f.Add("jt1/00000000", []byte{statestore.Format}, uint8(0))
	f.Add("hs1/00000000/0000", []byte{statestore.Format, 1, 2, 3}, uint8(2))
	f.Add("ct9/s1", []byte{statestore.Format, 0xa0}, uint8(2))
	partition := int32(1000)
	f.Fuzz(func(t *testing.T, key string, value []byte, how uint8) {
		partition++
		part := b.state.Attach(partition, func(bool) {})
		defer part.Detach()
		muts := []statestore.Mutation{{Op: statestore.OpSet, Key: key, Value: value}}
		if how&1 != 0 { // Beside what a turn under way really has.
			for _, r := range records {
				if r.Key != key && r.Value != nil {
					muts = append(muts, statestore.Mutation{Op: statestore.OpSet, Key: r.Key, Value: r.Value})
				}
			}
		}
		if err := part.Add(&statestore.Effect{Mutations: muts, Offset: statestore.NoOffset}); err != nil {
			t.Fatal(err)
		}
		codec, err := NewCodec(b.cfg)
		if err != nil {
			t.Fatal(err)
		}
		s, err := codec.Open(part)
		if err != nil {
			return
		}
		turns, _, err := s.Unfinished(0, nil)
		if err == nil {
			for _, u := range turns {
				if j, err := s.Resume(u.TurnID, ThriftNone, nil); err == nil && j != nil {
					j.Close()
				}
			}
		}
		for _, id := range []string{"t1", "t9"} {
			if j, err := s.Accept(ask(id, "hello", 2)); err == nil && j != nil {
				_ = j.History()
				j.Close()
			}
			_ = s.Cancel(&schemas.TurnEvent{Type: schemas.InputCancel, TurnID: id, SessionID: "s1"}, 3)
		}
	})
}
