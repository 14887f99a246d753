package consumer

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTracker_CommitsTheEndOfTheRunThatIsDone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		start     int64
		restored  []offsetRange
		delivered []int64
		done      []int64
		next      int64
		beyond    []offsetRange
	}{
		{name: "nothing delivered", start: 7, next: 7},
		{name: "nothing done", start: 7, delivered: []int64{7, 8}, next: 7},
		{name: "all done", start: 7, delivered: []int64{7, 8}, done: []int64{8, 7}, next: 9},
		{name: "the log has gaps", start: 0, delivered: []int64{3, 10, 11}, done: []int64{3, 10}, next: 11},
		{name: "done beyond a slow one", start: 0, delivered: []int64{0, 1, 2, 3, 5}, done: []int64{1, 2, 5}, next: 0, beyond: []offsetRange{{1, 3}, {4, 6}}},
		{name: "done before it came again", start: 4, restored: []offsetRange{{6, 8}}, delivered: []int64{4, 5, 6, 7, 8}, done: []int64{4, 5}, next: 8},
		{name: "restored and not yet reached", start: 4, restored: []offsetRange{{6, 8}, {20, 21}}, delivered: []int64{4}, next: 4, beyond: []offsetRange{{6, 8}, {20, 21}}},
		{name: "restored at the start", start: 6, restored: []offsetRange{{2, 4}, {5, 8}}, next: 8},
		{name: "restored range in a gap", start: 0, restored: []offsetRange{{2, 4}}, delivered: []int64{0, 9}, done: []int64{0}, next: 9},
		{name: "done twice, and never delivered", start: 0, delivered: []int64{0, 1}, done: []int64{0, 0, 50}, next: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tr := newTracker(tc.start, tc.restored)
			for _, o := range tc.delivered {
				tr.Deliver(o)
			}
			for range 2 { // What a cycle that is aborted has fixed changes nothing.
				before, beyond := tr.Plan(nil)
				tr.Revert()
				next, got := tr.Plan(tc.done)
				tr.Revert()
				if next != tc.next || !slices.Equal(got, tc.beyond) {
					t.Fatalf("planned %d %v, want %d %v", next, got, tc.next, tc.beyond)
				}
				if n, b := tr.Plan(nil); n != before || !slices.Equal(b, beyond) {
					t.Fatalf("after Revert %d %v, want %d %v", n, b, before, beyond)
				}
				tr.Revert()
			}
			tr.Plan(tc.done)
			tr.Confirm()
			if next, got := tr.Plan(nil); next != tc.next || !slices.Equal(got, tc.beyond) {
				t.Fatalf("after Confirm %d %v, want %d %v", next, got, tc.next, tc.beyond)
			}
		})
	}
}

// model is the tracker in the simplest way: every offset and what became of it.
type model struct {
	start, end int64
	done       map[int64]bool
	exists     []int64
}

// undone lists the existing offsets below end that are not done.
func (m *model) undone() []int64 {
	var out []int64
	for _, o := range m.exists {
		if o >= m.start && o < m.end && !m.done[o] {
			out = append(out, o)
		}
	}
	return out
}

func covered(o, next int64, done []offsetRange) bool {
	return o < next || slices.ContainsFunc(done, func(r offsetRange) bool { return r.From <= o && o < r.To })
}

// TestTracker_AgreesWithTheModel runs random deliveries, completions, cycles that fail and restarts, and compares what would be
// committed with the plain list of what is done.
func TestTracker_AgreesWithTheModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m := &model{done: map[int64]bool{}}
		for o := range int64(400) {
			if rnd.IntN(4) > 0 {
				m.exists = append(m.exists, o)
			}
		}
		tr, at := newTracker(0, nil), 0
		var open []int64
		for at < len(m.exists) || len(open) > 0 {
			if at < len(m.exists) && rnd.IntN(2) == 0 {
				o := m.exists[at]
				at++
				m.end = o + 1
				if tr.Deliver(o) != !m.done[o] {
					t.Fatalf("seed %d: deliver %d: done is %t", seed, o, m.done[o])
				}
				if !m.done[o] {
					open = append(open, o)
				}
				continue
			}
			rnd.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
			n := 0
			if len(open) > 0 {
				n = rnd.IntN(len(open)) + 1
			}
			next, done := tr.Plan(open[:n])
			if rnd.IntN(3) == 0 {
				tr.Revert()
				continue
			}
			tr.Confirm()
			for _, o := range open[:n] {
				m.done[o] = true
			}
			open = open[n:]
			checkAgainst(t, seed, m, next, done)
			if rnd.IntN(8) == 0 { // Restart: what is neither below next nor in a range comes again.
				pos, err := decodePosition(inputPosition{Partitions: 1, Next: next, Done: done}.encode())
				must(t, err)
				tr = newTracker(pos.Next, pos.Done)
				open = nil
				at = slices.IndexFunc(m.exists, func(o int64) bool { return o >= next })
				if at < 0 {
					at = len(m.exists)
				}
			}
		}
		if next, done := tr.Plan(nil); len(m.exists) > 0 && next <= m.exists[len(m.exists)-1] || len(done) > 0 {
			t.Fatalf("seed %d: at the end %d %v", seed, next, done)
		}
	}
}

func checkAgainst(t *testing.T, seed uint64, m *model, next int64, done []offsetRange) {
	t.Helper()
	for _, o := range m.undone() {
		if covered(o, next, done) {
			t.Fatalf("seed %d: %d is committed and not done: next %d done %v", seed, o, next, done)
		}
	}
	for o := range m.done {
		if m.done[o] && !covered(o, next, done) {
			t.Fatalf("seed %d: %d is done and not committed: next %d done %v", seed, o, next, done)
		}
	}
}

// TestTracker_TenMillionOffsets keeps a window open over ten million offsets with gaps and a slow turn now and then: what is
// committed only grows, the window bounds what is kept, and nothing is left at the end.
func TestTracker_TenMillionOffsets(t *testing.T) {
	t.Parallel()
	total, window := int64(10_000_000), 256
	if underRace {
		total /= 10 // One goroutine has no races; make test-kafka runs all of them.
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	tr := newTracker(0, nil)
	var open, slow []int64
	committed, cycle, last := int64(0), 0, int64(0)
	for o := int64(0); o < total || len(open)+len(slow) > 0; {
		for ; o < total && len(open)+len(slow) < window; o += 1 + int64(rnd.IntN(50)/49*rnd.IntN(9)) {
			if !tr.Deliver(o) {
				t.Fatalf("%d was not delivered", o)
			}
			last = o
			if rnd.IntN(2000) == 0 && len(slow) < window/2 {
				slow = append(slow, o)
			} else {
				open = append(open, o)
			}
		}
		n := min(len(open), 1+rnd.IntN(window))
		for i := range n {
			j := i + rnd.IntN(len(open)-i)
			open[i], open[j] = open[j], open[i]
		}
		batch := slices.Clone(open[:n])
		if len(slow) > 0 && (rnd.IntN(500) == 0 || o >= total) {
			batch = append(batch, slow[0])
		}
		next, done := tr.Plan(batch)
		if cycle++; cycle%7 == 0 {
			tr.Revert()
			continue
		}
		tr.Confirm()
		if next < committed || len(done) > window || tr.Open() > window || len(tr.open) > 3*window {
			t.Fatalf("cycle %d: next %d after %d, %d ranges, %d open, %d kept", cycle, next, committed, len(done), tr.Open(), len(tr.open))
		}
		committed, open = next, open[n:]
		if len(batch) > n {
			slow = slow[1:]
		}
	}
	if next, done := tr.Plan(nil); next != last+1 || len(done) > 0 {
		t.Fatalf("at the end %d %v, want %d", next, done, last+1)
	}
}

func BenchmarkTracker(b *testing.B) {
	tr := newTracker(0, nil)
	batch := make([]int64, 0, 256)
	for o := int64(0); b.Loop(); o++ {
		tr.Deliver(o)
		if batch = append(batch, o); len(batch) == cap(batch) {
			tr.Plan(batch)
			tr.Confirm()
			batch = batch[:0]
		}
	}
}
