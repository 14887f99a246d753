package dedupe

import (
	"sync/atomic"
	"time"
)

// clock tells how late it is for what expires. The wall clock alone must not: one that is set years ahead would forget every
// turn at once. So time has passed only when the wall clock and the producers of turns agree on it: the earlier of the two
// counts. A clock that is set back, or producers that are, only make expiry wait; until a first turn came it waits too.
type clock struct {
	now  func() time.Time
	seen atomic.Pointer[sighting]
}

// sighting is a record's time, and when it was seen, which has a monotonic reading: what passed since then has passed for the
// producers too.
type sighting struct{ record, at time.Time }

func (s *sighting) time() time.Time { return s.record.Add(time.Since(s.at)) }

// see takes note of a record's time.
func (c *clock) see(record time.Time) {
	for {
		last := c.seen.Load()
		if last != nil && !record.After(last.time()) {
			return
		}
		if c.seen.CompareAndSwap(last, &sighting{record: record, at: time.Now()}) {
			return
		}
	}
}

// producers is how late it is at least by the clocks of producers; false when that is not known yet.
func (c *clock) producers() (time.Time, bool) {
	seen := c.seen.Load()
	if seen == nil {
		return time.Time{}, false
	}
	return seen.time(), true
}

// time is how late it is at least; false when that is not known yet.
func (c *clock) time() (time.Time, bool) {
	producers, known := c.producers()
	if now := c.now(); known && now.Before(producers) {
		return now, true
	}
	return producers, known
}

// later returns the later of two times: what is to be kept is stamped by whichever clock is ahead.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
