package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// nextFormats are the formats of a later release, whose version 2 stores bodies backwards.
func nextFormats(write byte) Formats {
	turn := func(body []byte) []byte {
		out := bytes.Clone(body)
		slices.Reverse(out)
		return out
	}
	return Formats{
		Newest: 2, Write: write,
		Load:  func(_ byte, _ string, body []byte) ([]byte, error) { return turn(body), nil },
		Store: func(_ byte, _ string, body []byte) []byte { return turn(body) },
	}
}

// stateOf is a state as a partition's user reads it.
func stateOf(t *testing.T, s *Store, id int32) map[string]string {
	t.Helper()
	p := attach(s, id)
	defer p.Detach()
	out := make(map[string]string)
	if err := p.Scan("k", func(key string, value []byte) error {
		out[key] = string(value)
		return nil
	}); err != nil {
		t.Errorf("Scan: %v", err)
	}
	for key, scanned := range out {
		if got, found, err := p.Get(key); err != nil || !found || string(got) != scanned {
			t.Errorf("Get(%s) = %q, %t, %v, but Scan gives %q", key, got, found, err, scanned)
		}
		if got, _, found, err := p.Last(key); err != nil || !found || got != key {
			t.Errorf("Last(%s) = %q, %t, %v", key, got, found, err)
		}
	}
	chunks, err := p.Log("log")
	if err != nil {
		t.Errorf("Log: %v", err)
	}
	out["log"] = string(bytes.Join(chunks, nil))
	return out
}

// writes commits some state of one release to partition 1 and returns the changelog of it.
func writes(t *testing.T, s *Store, name string) []Record {
	t.Helper()
	p := attach(s, 1)
	defer p.Detach()
	add(t, p, effect(set("k-"+name, name+" value"), set("k-shared", "by "+name), app("log", name+",")))
	b := take(t, p)
	b.Set("k-position", stored("position of "+name))
	commit(t, s, b, position(1))
	return b.Records
}

// A release and the one after it share a group: what either writes, while the later one is not told to write its own format, the
// other reads, from the changelog as from the files.
func TestFormats_ReleasesReadEachOther(t *testing.T) {
	t.Parallel()
	releases := map[string]Formats{"old": {}, "new": nextFormats(1)}
	for _, first := range []string{"old", "new"} {
		for _, second := range []string{"old", "new"} {
			t.Run(first+" then "+second, func(t *testing.T) {
				t.Parallel()
				want := map[string]string{
					"k-position": string(stored("position of " + first)), "k-" + first: string(stored(first + " value")),
					"k-shared": string(stored("by " + first)), "log": first + ",",
				}
				fs := vfs.NewMem()
				a, err := Open(Config{Dir: "state", FS: fs, Formats: releases[first]})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				log := writes(t, a, first)
				for _, r := range log {
					if r.Value[0] != 1 {
						t.Errorf("%s is written in format %d, want 1", r.Key, r.Value[0])
					}
				}
				if err := a.Close(); err != nil {
					t.Fatalf("Close: %v", err)
				}
				b := openStore(t, Config{FS: fs, Formats: releases[second]})
				if got := stateOf(t, b, 1); !maps.Equal(got, want) {
					t.Errorf("from the files: %q, want %q", got, want)
				}
				if err := b.Restore(2, log, position(1)); err != nil {
					t.Fatalf("Restore: %v", err)
				}
				if got := stateOf(t, b, 2); !maps.Equal(got, want) {
					t.Errorf("from the changelog: %q, want %q", got, want)
				}
			})
		}
	}
}

// Once all releases can read it, the setting makes the new format: state that has both is read, and is what the changelog has.
func TestFormats_NewFormatIsWrittenWhenToldTo(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	a, err := Open(Config{Dir: "state", FS: fs})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	log := writes(t, a, "old")
	if err := a.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	b := openStore(t, Config{FS: fs, Formats: nextFormats(2)})
	records := writes(t, b, "new")
	for _, r := range records {
		if r.Value[0] != 2 {
			t.Errorf("%s is written in format %d, want 2", r.Key, r.Value[0])
		}
	}
	if i := slices.IndexFunc(records, func(r Record) bool { return r.Key == "k-new" }); string(records[i].Value[1:]) != "eulav wen" {
		t.Errorf("format 2 stores %q", records[i].Value[1:])
	}
	want := map[string]string{
		"k-position": string(stored("position of new")), "k-old": string(stored("old value")), "k-new": string(stored("new value")),
		"k-shared": string(stored("by new")), "log": "old,new,",
	}
	if got := stateOf(t, b, 1); !maps.Equal(got, want) {
		t.Errorf("state = %q, want %q", got, want)
	}
	folded := make(map[string]string)
	fold(folded, append(log, records...))
	if got := committedState(t, b, 1); !maps.Equal(got, folded) {
		t.Errorf("Pebble has %q, the changelog %q", got, folded)
	}
}

// A format that a release does not know stops it before it has the partition, or when it meets it in its own files, and says what
// would read it.
func TestFormats_UnknownVersionIsRefusedByName(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	a, err := Open(Config{Dir: "state", FS: fs, Formats: nextFormats(2)})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	log := writes(t, a, "new")
	if err := a.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	b := openStore(t, Config{FS: fs})
	p := attach(b, 1)
	_, _, getErr := p.Get("k-new")
	_, logErr := p.Log("log")
	_, _, _, lastErr := p.Last("k-")
	for name, err := range map[string]error{
		"Get": getErr, "Log": logErr, "Last": lastErr, "Scan": p.Scan("k-", func(string, []byte) error { return nil }),
		"Restore": b.Restore(2, log, position(1)), "Restore of nothing": b.Restore(2, []Record{{Key: "k", Value: []byte{}}}, position(1)),
	} {
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%s gives %v, want ErrFormat", name, err)
		}
	}
	if text := fmt.Sprint(getErr); !strings.Contains(text, `"k-new" is stored in format 2`) || !strings.Contains(text, "LATHE_STATE_FORMAT=1") {
		t.Errorf("the error says %s", text)
	}
	if _, found, err := b.Position(2); found || err != nil {
		t.Errorf("a refused restore left a position: %t, %v", found, err)
	}
	p.Detach()
}

func TestOpen_RefusesToWriteAFormatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, f := range []Formats{{Write: 2}, nextFormats(3), {Newest: 3, Write: 1}} {
		if _, err := Open(Config{Dir: "state", FS: vfs.NewMem(), Formats: f}); err == nil || !strings.Contains(err.Error(), "LATHE_STATE_FORMAT is ") {
			t.Errorf("Open with %d of %d gives %v", f.Write, f.Newest, err)
		}
	}
}

// An older build finds files that a later Pebble has raised: it moves them aside and restores, nothing is lost.
func TestOpen_MovesFilesOfALaterPebbleAside(t *testing.T) {
	t.Parallel()
	fs := filled(t)
	later := fmt.Sprintf("state/marker.format-version.999999.%03d", pebble.FormatNewest+100)
	f, err := fs.Create(later, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Config{FS: fs})
	if n := len(committedState(t, s, 1)); n != 0 || len(asides(t, fs)) != 1 {
		t.Errorf("the store has %d keys, and %q is aside", n, asides(t, fs))
	}
}
