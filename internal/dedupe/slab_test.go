package dedupe

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

func TestCodec_WritesEventsIntoTheTurnsMemory(t *testing.T) {
	t.Parallel()
	encoder, err := schemas.NewEncoder(schemas.EncodingJSON, schemas.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := encoder.(roomEncoder); !ok {
		t.Error("the encoders of schemas cannot write into memory of their caller any more")
	}
}

// filled is n bytes that tell pieces apart.
func filled(dst []byte, n, with int) []byte {
	return append(dst, bytes.Repeat([]byte{byte(with)}, n)...)
}

func TestSlab_HandsOutPiecesThatNobodyElseWritesTo(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		s := slab[byte]{chunk: 64, expected: rng.IntN(500)}
		var pieces [][]byte
		for i := range 100 {
			n := rng.IntN(90)
			piece := s.take(n)
			if len(piece) != 0 || cap(piece) != n {
				t.Fatalf("a piece for %d has %d of %d", n, len(piece), cap(piece))
			}
			pieces = append(pieces, filled(piece, n, i))
		}
		for i, piece := range pieces {
			if !bytes.Equal(piece, filled(nil, len(piece), i)) {
				t.Fatalf("piece %d was written to: %x", i, piece)
			}
		}
	}
}

func TestTextSlab_MakesWhatConcatenationMakes(t *testing.T) {
	t.Parallel()
	var s textSlab
	var got, want []string
	for n := range 400 {
		id, ref := strings.Repeat("t", n), fact.Ref{Step: n, Position: n * n}
		got = append(got, s.join(id, "/", "kind", "/place"), s.key(id, ref))
		want = append(want, id+"/kind/place", ref.Key(id))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSizes_FollowWhatTurnsNeed(t *testing.T) {
	t.Parallel()
	var s sizes
	for _, step := range []struct{ turns, needed, want int64 }{{1, 100, 25}, {20, 100, 100}, {1, 101, 101}, {1, 20, 95}, {100, 20, 20}, {1, 1020, 270}} {
		for range step.turns {
			follow(&s.small, int(step.needed))
		}
		if got := s.small.Load(); got != step.want {
			t.Errorf("after %d turns of %d: %d, want %d", step.turns, step.needed, got, step.want)
		}
	}
}
