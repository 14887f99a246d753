package cli

import (
	"slices"
	"time"
)

// mergeWait is how long an event waits for the ones before it: those of a turn come from two topics.
const mergeWait = 300 * time.Millisecond

// merger brings the events of each turn into the order of seq.
type merger struct {
	turns map[string]*turnOrder
	loose []event
}

// turnOrder is what is known of one turn's events.
type turnOrder struct {
	next    int64
	waiting []event
	since   time.Time
}

func newMerger() *merger { return &merger{turns: make(map[string]*turnOrder)} }

func (m *merger) add(ev event, now time.Time) {
	if ev.env.Seq == nil {
		m.loose = append(m.loose, ev)
		return
	}
	t := m.turns[ev.env.TurnID]
	if t == nil {
		t = &turnOrder{}
		m.turns[ev.env.TurnID] = t
	}
	if len(t.waiting) == 0 {
		t.since = now
	}
	t.waiting = append(t.waiting, ev)
}

// ready returns the events whose turn it is, and those that have waited long enough for the ones before them.
func (m *merger) ready(now time.Time) []event {
	out := m.loose
	m.loose = nil
	var ids []string
	for id := range m.turns {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		t := m.turns[id]
		out = append(out, t.ready(now)...)
		if len(out) > 0 {
			if _, ended := endOf(out[len(out)-1]); ended && out[len(out)-1].env.TurnID == id {
				delete(m.turns, id)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b event) int {
		if a.env.TurnID == b.env.TurnID {
			return 0
		}
		return a.env.At.Compare(b.env.At)
	})
	return out
}

func (t *turnOrder) ready(now time.Time) []event {
	slices.SortStableFunc(t.waiting, func(a, b event) int { return int(*a.env.Seq - *b.env.Seq) })
	late := len(t.waiting) > 0 && now.Sub(t.since) >= mergeWait
	n := 0
	for n < len(t.waiting) && (late || *t.waiting[n].env.Seq <= t.next) {
		t.next = *t.waiting[n].env.Seq + 1
		n++
	}
	out := slices.Clone(t.waiting[:n])
	t.waiting = slices.Delete(t.waiting, 0, n)
	t.since = now
	return out
}
