package statestore

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

func TestRestore_AppliesRecordsAndThePositionTogether(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	records := []Record{
		{Key: "a", Value: stored("1")},
		{Key: "b", Value: stored("1")},
		{Key: "a", Value: stored("2")},
		{Key: "b"},
		{Key: "never"},
		{Key: logRecordKey("j", 0), Value: stored("xy")},
	}
	if err := s.Restore(3, records, position(6)); err != nil {
		t.Fatalf("Restore: %v", err)
	}
	want := map[string]string{"a": string(stored("2")), "j/00000000": string(stored("xy"))}
	if got := committedState(t, s, 3); !maps.Equal(got, want) {
		t.Errorf("state is %q, want %q", got, want)
	}
	if pos, found, err := s.Position(3); err != nil || !found || pos != position(6) {
		t.Errorf("Position = %+v, %t, %v, want %+v", pos, found, err, position(6))
	}
	p := attach(s, 3)
	parts, err := p.Log("j")
	if err != nil || len(parts) != 1 || string(parts[0]) != "xy" {
		t.Errorf("Log = %q, %v, want xy", parts, err)
	}
	p.Detach()
}

func TestWipe_RemovesOnePartitionAndNoOther(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	partitions := []int32{0, 1, 2, 255, 256}
	for _, n := range partitions {
		if err := s.Restore(n, []Record{{Key: "a", Value: stored("1")}, {Key: "\xff\xff", Value: stored("1")}}, position(int64(n))); err != nil {
			t.Fatalf("Restore: %v", err)
		}
	}
	for _, wiped := range []int32{1, 255} {
		if err := s.Wipe(wiped); err != nil {
			t.Fatalf("Wipe: %v", err)
		}
	}
	for _, n := range partitions {
		want := 2
		if n == 1 || n == 255 {
			want = 0
		}
		_, found, err := s.Position(n)
		if got := len(committedState(t, s, n)); got != want || found != (want > 0) || err != nil {
			t.Errorf("partition %d has %d keys, position %t, %v, want %d keys", n, got, found, err, want)
		}
	}
}

func TestScan_SeesKeysWithThePrefixAndNoOthers(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	other := attach(s, 2)
	add(t, other, effect(set("ha", "2")))
	add(t, p, effect(set("g", "1"), set("h\xff", "1"), set("ha", "1"), set("hb", "1"), set("i", "1")))
	commitAll(t, s, p)
	commitAll(t, s, other)
	add(t, p, effect(del("ha"), set("hab", "2"), set("hb", "2"), set("hz", "2"), set("ga", "2")))
	var got []string
	if err := p.Scan("h", func(key string, value []byte) error {
		got = append(got, key+"="+string(value[1:]))
		return nil
	}); err != nil {
		t.Fatalf("Scan: %v", err)
	}
	if want := []string{"hab=2", "hb=2", "hz=2", "h\xff=1"}; !slices.Equal(got, want) {
		t.Errorf("Scan saw %q, want %q", got, want)
	}
	p.Detach()
	other.Detach()
}

func TestScan_StopsAtTheVisitorsError(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	p := attach(s, 1)
	add(t, p, effect(set("b", "1")))
	commitAll(t, s, p)
	add(t, p, effect(set("a", "1"), set("c", "1")))
	stop := errors.New("stop")
	for _, at := range []string{"a", "b", "c"} {
		seen := 0
		err := p.Scan("", func(key string, _ []byte) error {
			seen++
			if key == at {
				return stop
			}
			return nil
		})
		if !errors.Is(err, stop) || seen != int(at[0]-'a')+1 {
			t.Errorf("Scan gives %v after %d keys, want the error of %s", err, seen, at)
		}
	}
	p.Detach()
}

func TestBody_RefusesWhatANewerReleaseWrote(t *testing.T) {
	t.Parallel()
	if body, err := Body(stored("x")); err != nil || string(body) != "x" {
		t.Errorf("Body = %q, %v", body, err)
	}
	for _, value := range [][]byte{nil, {}, {0}, {Format + 1, 'x'}} {
		if _, err := Body(value); !errors.Is(err, ErrFormat) {
			t.Errorf("Body(%v) gives %v, want ErrFormat", value, err)
		}
	}
}

func TestStore_GivesErrFormatForAPositionOfANewerRelease(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	if err := s.db.Set(positionKey(1), []byte{localFormat + 1, 'x'}, pebble.NoSync); err != nil {
		t.Fatalf("Set: %v", err)
	}
	if _, _, err := s.Position(1); !errors.Is(err, ErrFormat) {
		t.Errorf("Position gives %v, want ErrFormat", err)
	}
}

func FuzzDecodePosition(f *testing.F) {
	f.Add(position(5).encode(Format))
	f.Add(Position{LeaderEpoch: -1}.encode(Format))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePosition(b, Format)
		if err != nil {
			return
		}
		if again, err := decodePosition(p.encode(Format), Format); err != nil || again != p {
			t.Errorf("decode(encode(%+v)) = %+v, %v", p, again, err)
		}
	})
}
