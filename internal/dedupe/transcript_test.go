package dedupe

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// fillTranscript adds random frames, some of which are taken back, and returns copies of those that stayed.
func fillTranscript(rng *rand.Rand, t *transcript) (frames, copies [][]byte) {
	for i := range rng.IntN(30) {
		kept := len(t.ends)
		n := 1 + rng.IntN(400)
		frame := t.add(filled(t.room(n+rng.IntN(12), rng.IntN(4000)), n, i))
		if rng.IntN(4) == 0 {
			t.cut(kept)
			continue
		}
		frames, copies = append(frames, frame), append(copies, bytes.Clone(frame))
	}
	return frames, copies
}

// The history's parts are those that were made when frames were copied into them one by one.
func TestTranscript_GivesTheFramesInWholePartsUnderTheLimit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		var tr transcript
		frames, copies := fillTranscript(rng, &tr)
		limit := rng.IntN(3000) + stampSize
		want := [][]byte{stamped(at(0), 0)}
		for _, f := range copies {
			if last := want[len(want)-1]; len(last)+len(f) > limit && len(last) > stampSize {
				want = append(want, stamped(at(0), 0))
			}
			want[len(want)-1] = append(want[len(want)-1], f...)
		}
		var got [][]byte
		tr.parts(at(0), limit, func(value []byte) { got = append(got, value) })
		if len(got) != len(want) {
			t.Fatalf("limit %d: %d parts, want %d", limit, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("limit %d, part %d is %x, want %x", limit, i, got[i], want[i])
			}
		}
		for i := range frames {
			if !bytes.Equal(frames[i], copies[i]) || cap(frames[i]) != len(frames[i]) {
				t.Fatalf("frame %d has changed, or has room that is not its own", i)
			}
		}
	}
}
