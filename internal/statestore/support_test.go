package statestore

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
)

var seedFlag = flag.Uint64("seed", 0, "the seed of randomised tests; 0 takes a new one")

func TestMain(m *testing.M) {
	// Pebble leaves this one behind when it finds damage late while it opens.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/cockroachdb/pebble/v2.(*ConcurrencyLimitScheduler).periodicGranter"))
}

// newRand returns a source whose seed is in the log.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// openStore opens a store in memory and closes it with the test.
func openStore(tb testing.TB, cfg Config) *Store {
	tb.Helper()
	if cfg.FS == nil {
		cfg.FS = vfs.NewMem()
	}
	cfg.Dir = "state"
	if cfg.Logger == nil && testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	s, err := Open(cfg)
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return s
}

func attach(s *Store, partition int32) *Partition {
	return s.Attach(partition, func(bool) {})
}

func set(key, value string) Mutation {
	return Mutation{Op: OpSet, Key: key, Value: stored(value)}
}

func del(key string) Mutation { return Mutation{Op: OpDelete, Key: key} }

// app appends to a log, every other time late.
func app(log, chunk string) Mutation {
	if appended.Add(1)%2 == 0 {
		return Mutation{Op: OpAppend, Key: log, Late: &late{text: chunk}}
	}
	return Mutation{Op: OpAppend, Key: log, Value: []byte(chunk)}
}

var appended atomic.Int64

// late is made of its text, and counts how often it was made.
type late struct {
	text string
	made atomic.Int64
	once sync.Once
	b    []byte
}

func (l *late) Size() int { return len(l.text) + 10 }

func (l *late) Bytes() []byte {
	l.once.Do(func() {
		l.made.Add(1)
		l.b = []byte(l.text)
	})
	return l.b
}

func drop(log string) Mutation { return Mutation{Op: OpDrop, Key: log} }

// stored is a value as it is kept: with its version byte.
func stored(s string) []byte { return append([]byte{Format}, s...) }

func effect(ms ...Mutation) *Effect { return &Effect{Mutations: ms, Offset: NoOffset} }

func add(tb testing.TB, p *Partition, e *Effect) {
	tb.Helper()
	if err := p.Add(e); err != nil {
		tb.Fatalf("Add: %v", err)
	}
}

func take(tb testing.TB, p *Partition) *Batch {
	tb.Helper()
	b, err := p.Take(1<<30, 1<<30)
	if err != nil {
		tb.Fatalf("Take: %v", err)
	}
	return b
}

func commit(tb testing.TB, s *Store, b *Batch, pos Position) {
	tb.Helper()
	commitCycle(tb, s, Settlement{Batch: b, Position: pos})
}

func commitCycle(tb testing.TB, s *Store, batches ...Settlement) {
	tb.Helper()
	for _, st := range batches {
		st.Batch.Waiting().Tell()
	}
	if err := s.Commit(batches); err != nil {
		tb.Fatalf("Commit: %v", err)
	}
}

// commitAll takes and commits everything that waits, and returns the changelog records of it.
func commitAll(tb testing.TB, s *Store, p *Partition) []Record {
	tb.Helper()
	b := take(tb, p)
	if b == nil {
		return nil
	}
	commit(tb, s, b, Position{})
	return b.Records
}

// show is a record as a test compares it.
func show(r Record) string {
	if r.Value == nil {
		return r.Key + " deleted"
	}
	return fmt.Sprintf("%s=%s", r.Key, r.Value[1:])
}

func showAll(rs []Record) []string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = show(r)
	}
	return out
}

// committedState is what Pebble has of a partition.
func committedState(tb testing.TB, s *Store, partition int32) map[string]string {
	tb.Helper()
	out := make(map[string]string)
	err := s.Scan(partition, "", func(key string, value []byte) error {
		out[key] = string(value)
		return nil
	})
	if err != nil {
		tb.Fatalf("Scan: %v", err)
	}
	return out
}

// fold applies changelog records to a state, as a restore from the topic does.
func fold(state map[string]string, records []Record) {
	for _, r := range records {
		if r.Value == nil {
			delete(state, r.Key)
		} else {
			state[r.Key] = string(r.Value)
		}
	}
}

// settlements collects what effects are told, in order.
type settlements struct {
	mu   sync.Mutex
	told []string
}

func (s *settlements) of(name string) func(error) {
	return func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err == nil:
			s.told = append(s.told, name+" committed")
		case errors.Is(err, ErrGone):
			s.told = append(s.told, name+" gone")
		case errors.Is(err, ErrDropped):
			s.told = append(s.told, name+" dropped")
		default:
			s.told = append(s.told, name+" "+err.Error())
		}
	}
}

func position(n int64) Position {
	return Position{
		ChangelogID: [16]byte{1, 2, 3}, ChangelogNext: n, LeaderEpoch: int32(n % 7), Incarnation: 99, CID: uint64(n),
		At: time.UnixMilli(1_800_000_000_123 + n).UTC(),
	}
}

func isGone(err error) bool { return errors.Is(err, ErrGone) }
