package consumer

import (
	"reflect"
	"testing"

	"github.com/lathe-run/lathe/internal/statestore"
)

func TestPosition_ComesBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		pos  inputPosition
	}{
		{"at the beginning", inputPosition{Partitions: 1}},
		{"nothing done beyond", inputPosition{TopicID: [16]byte{1, 15: 9}, Partitions: 12, Next: 1 << 40}},
		{"ranges done beyond", inputPosition{Partitions: 12, Next: 5, Done: []offsetRange{{6, 7}, {9, 400}, {1 << 33, 1<<33 + 1}}}},
		{"the largest offset", inputPosition{Partitions: 1<<31 - 1, Next: 1<<63 - 3, Done: []offsetRange{{1<<63 - 2, 1<<63 - 1}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := decodePosition(tc.pos.encode())
			if err != nil || !reflect.DeepEqual(got, tc.pos) {
				t.Fatalf("got %+v, %v, want %+v", got, err, tc.pos)
			}
		})
	}
}

func TestPosition_OfANewerReleaseIsRefused(t *testing.T) {
	t.Parallel()
	b := inputPosition{Partitions: 1}.encode()
	b[0] = statestore.Format + 1
	if _, err := decodePosition(b); err == nil {
		t.Fatal("an unknown format was read")
	}
}

func FuzzPosition(f *testing.F) {
	f.Add(inputPosition{Partitions: 3, Next: 7, Done: []offsetRange{{8, 9}, {11, 12}}}.encode())
	f.Add([]byte{statestore.Format})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePosition(b)
		if err != nil {
			return
		}
		again, err := decodePosition(p.encode())
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v came back as %+v, %v", p, again, err)
		}
	})
}
