package consumer

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// arrival is a record that waits for its turn.
type arrival struct {
	raw *kgo.Record
	// refused is why it is not even to be decoded.
	refused *schemas.Error
}

// offer takes polled records. It is called by the poll goroutine, which never waits: what the window has no place for waits here,
// and the partition is paused when that is too much.
func (p *partition) offer(records []*kgo.Record, highWater int64) {
	p.mu.Lock()
	p.mu.highWater = highWater
	if len(records) > 0 && p.intake.Err() == nil {
		for _, r := range records {
			p.mu.backlog = append(p.mu.backlog, arrival{raw: r})
			p.mu.bytes += recordBytes(r)
		}
		p.mu.fetched = records[len(records)-1].Offset + 1
	}
	p.mu.Unlock()
	signal(p.arrived)
	p.syncPause()
}

// offerRefused takes the remains of a batch that cannot be read, in the place of its records.
func (p *partition) offerRefused(remains *kgo.Record, reason *schemas.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.intake.Err() != nil {
		return
	}
	p.mu.backlog = append(p.mu.backlog, arrival{raw: remains, refused: reason})
	p.mu.bytes += recordBytes(remains)
	p.mu.fetched = remains.Offset + 1
	signal(p.arrived)
}

// recordBytes is about what a record holds in memory.
func recordBytes(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value) + 256
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 40
	}
	return int64(n)
}

// syncPause pauses fetching when too much waits and resumes it when half of that is left, so that fetched records are seldom
// thrown away. The lock keeps two callers from crossing.
func (p *partition) syncPause() {
	p.pausing.Lock()
	defer p.pausing.Unlock()
	if p.is() != stateRunning || p.heldOff.Load() {
		return // Who changed the state, or holds it, decides.
	}
	limit := p.w.backlogLimit()
	p.mu.Lock()
	n, bytes := len(p.mu.backlog), p.mu.bytes
	p.mu.Unlock()
	switch on := p.paused.Load(); {
	case !on && (n >= maxBacklog || bytes >= limit):
		p.pauseLocked(true)
	case on && n <= maxBacklog/2 && bytes <= limit/2:
		p.pauseLocked(false)
	}
}

func (p *partition) setPause(on bool) {
	p.pausing.Lock()
	defer p.pausing.Unlock()
	p.pauseLocked(on)
}

func (p *partition) pauseLocked(on bool) {
	p.paused.Store(on)
	if g := p.w.group(); g != nil {
		pauseFetch(g, p.w.cfg.Turns.Name, p.id, on)
	}
}

func pauseFetch(g *kgo.Client, topic string, id int32, on bool) {
	if on {
		g.PauseFetchPartitions(map[string][]int32{topic: {id}})
	} else {
		g.ResumeFetchPartitions(map[string][]int32{topic: {id}})
	}
}

// dispatch is the partition's dispatcher: it takes records from the backlog in order as the window has places, decodes them and
// puts them in their lanes. The turns that no record brings come first.
func (p *partition) dispatch() {
	defer p.leave()
	if p.opened != nil {
		select {
		case <-p.opened:
		case <-p.intake.Done():
			return
		}
	}
	if !p.resume() {
		return
	}
	for {
		a, ok := p.next()
		if !ok || !p.acquire() {
			return
		}
		p.take(a)
		runtime.Gosched() // As the waker does: a fetch brings hundreds of records.
	}
}

func (p *partition) resume() bool {
	tasks, err := p.handler.Resume(p.intake)
	if err != nil {
		if p.intake.Err() == nil {
			p.halt(p.ctx, err)
		}
		return false
	}
	for _, t := range tasks {
		if !p.acquire() {
			return false
		}
		if !p.push(t.LaneKey, task{rec: t.Record, run: t.Run}) {
			p.w.release(p)
			return false
		}
	}
	return true
}

// next waits for the next record of the backlog.
func (p *partition) next() (arrival, bool) {
	for {
		p.mu.Lock()
		if len(p.mu.backlog) > 0 {
			a := p.mu.backlog[0]
			p.mu.backlog[0] = arrival{}
			p.mu.backlog = p.mu.backlog[1:]
			p.mu.bytes -= recordBytes(a.raw)
			p.mu.taken++
			p.mu.Unlock()
			if p.paused.Load() {
				p.syncPause()
			}
			return a, p.intake.Err() == nil
		}
		p.mu.backlog = nil
		p.mu.Unlock()
		select {
		case <-p.arrived:
		case <-p.intake.Done():
			return arrival{}, false
		}
	}
}

// acquire takes a place in the window and one of the worker, and waits while the buffer is full.
func (p *partition) acquire() bool {
	for p.full() {
		select {
		case <-p.space:
		case <-p.intake.Done():
			return false
		}
	}
	select {
	case p.window <- struct{}{}:
	case <-p.intake.Done():
		return false
	}
	select {
	case p.w.slots <- struct{}{}:
		return true
	case <-p.intake.Done():
		<-p.window
		return false
	}
}

// take hands one record on. It holds a place, which goes with the turn or is given back.
func (p *partition) take(a arrival) {
	p.mu.Lock()
	fresh := p.mu.tracker.Deliver(a.raw.Offset)
	p.mu.Unlock()
	if !fresh || !p.route(a) { // Not fresh: its effect was committed before.
		p.w.release(p)
	}
}

// route decodes a record and does with it what it is. It reports whether its place went with it.
func (p *partition) route(a arrival) bool {
	rec := newRecord(a.raw)
	if p.suspects > 0 {
		p.suspects--
		rec.Suspect = true
	}
	rec.batch = a.refused != nil
	reason, ok := a.refused, true
	if reason == nil {
		reason, ok = p.decode(rec)
	}
	switch {
	case !ok: // Intake has stopped.
	case reason != nil:
		if p.begun(rec) {
			rec.Refused = reason
			p.w.log.WarnContext(p.ctx, "record is refused, but its turn has begun before", p.attr(), slog.Int64("offset", rec.Offset),
				slog.String("turn", rec.Event.TurnID), slog.String("reason", string(reason.Code)), slog.Any("error", reason))
			return p.push(rec.Event.SessionID, task{rec: rec, bytes: recordBytes(a.raw)})
		}
		p.deadLetter(rec, reason)
	case rec.Event.Type == schemas.InputCancel:
		p.settleTask(rec, p.guarded(func() error { return p.handler.Cancel(p.ctx, rec) }))
	default:
		return p.push(rec.Event.SessionID, task{rec: rec, bytes: recordBytes(a.raw)})
	}
	return false
}

// begun reports whether the turn of a refused record may have begun under other settings. Either the record is whole, but stands where
// the partitioner that is set now would not have put it; or it cannot be read, and only its place tells what it was. A batch is no
// turn's, though its last record may have been.
func (p *partition) begun(rec *Record) bool {
	r, ok := p.handler.(Rememberer)
	switch {
	case !ok || rec.batch:
		return false
	case rec.Hash != nil:
		return rec.Event.Type != schemas.InputCancel && r.Begun(rec)
	}
	ev, hash := r.Recall(rec.Offset)
	if ev == nil {
		return false
	}
	rec.Event, rec.Hash = ev, hash
	return true
}

// Registry retries.
const (
	minRetry = 250 * time.Millisecond
	maxRetry = 30 * time.Second
)

// decode decodes the record. Whatever may pass, such as a registry that does not answer, is tried again for as long as it takes:
// the partition waits, its backlog fills and it is paused. False means that intake has stopped.
func (p *partition) decode(rec *Record) (*schemas.Error, bool) {
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		reason := p.w.read(p.intake, rec)
		select {
		case <-p.intake.Done():
			return nil, false
		default:
		}
		if reason == nil || reason.Class == schemas.ClassTerminal {
			if wait > minRetry {
				p.setWaiting(p.ctx, nil)
			}
			return reason, true
		}
		p.setWaiting(p.ctx, reason)
		p.w.metrics.retry(p.ctx, retryDecode)
		select {
		case <-time.After(max(wait, min(reason.RetryAfter, maxRetry))):
		case <-p.intake.Done():
			return nil, false
		}
	}
}

// setWaiting says, once, what the partition waits for.
func (p *partition) setWaiting(ctx context.Context, reason *schemas.Error) {
	text := ""
	if reason != nil {
		text = reason.Detail()
	}
	p.mu.Lock()
	was := p.mu.waiting
	p.mu.waiting = text
	p.mu.Unlock()
	switch {
	case was == "" && text != "":
		p.w.log.WarnContext(ctx, "partition waits", p.attr(), slog.Any("error", reason))
	case was != "" && text == "":
		p.w.log.InfoContext(ctx, "partition goes on", p.attr())
	}
}
