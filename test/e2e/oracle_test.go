package e2e_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lathe-run/lathe/schemas"
)

// check is the oracle. It is called when every turn has ended and every worker has drained, reads all that was committed, and
// checks every promise on it.
func (r *reader) check() {
	r.Helper()
	r.toEnd()
	if open := r.open(); len(open) > 0 {
		r.fault("turns are lost: %v have no end", open)
	}
	r.checkIDs()
	for _, s := range r.sent {
		r.checkTurn(s)
	}
	r.checkStrangers()
	r.checkLedger()
	r.checkSessions()
	r.checkDeadLetters()
	r.checkOffsets()
	r.checkState()
}

// fault is something that should not be.
func (r *reader) fault(format string, args ...any) {
	r.Helper()
	if r.faults == nil {
		r.Errorf(format, args...)
		return
	}
	*r.faults = append(*r.faults, fmt.Sprintf(format, args...))
}

// checkIDs: each event once, and each record says what it holds.
func (r *reader) checkIDs() {
	r.Helper()
	seen := make(map[string]bool, len(r.outputs))
	for _, o := range r.outputs {
		if seen[o.env.EventID] {
			r.fault("event %s was emitted twice", o.env.EventID)
		}
		seen[o.env.EventID] = true
		if got := header(o.rec, "ce_id"); got != o.env.EventID {
			r.fault("event %s has the header ce_id %q", o.env.EventID, got)
		}
		if want := "run.lathe." + strings.ReplaceAll(o.env.Type, ":", "."); header(o.rec, "ce_type") != want {
			r.fault("event %s has the header ce_type %q", o.env.EventID, header(o.rec, "ce_type"))
		}
		if header(o.rec, "ce_subject") != o.env.TurnID || header(o.rec, "content-type") == "" {
			r.fault("event %s has the headers %v", o.env.EventID, o.rec.Headers)
		}
		if string(o.rec.Key) != o.env.SessionID {
			r.fault("event %s of session %s has the key %q", o.env.EventID, o.env.SessionID, o.rec.Key)
		}
	}
}

// checkTurn: from a start to one end without a gap, the end as expected, and each call with its start before its result.
func (r *reader) checkTurn(s sentTurn) {
	r.Helper()
	events := r.events(s.id)
	if len(events) == 0 {
		return // It is reported as lost.
	}
	for i, o := range events {
		if *o.env.Seq != int64(i) {
			r.fault("turn %s: event %s has seq %d, want %d", s.id, o.env.EventID, *o.env.Seq, i)
		}
		if o.env.SessionID != s.session {
			r.fault("turn %s: event %s says session %s", s.id, o.env.EventID, o.env.SessionID)
		}
	}
	last := events[len(events)-1]
	if events[0].env.Type != schemas.TypeTurnStart || last.env.Type != schemas.TypeTurnEnd {
		r.fault("turn %s goes from %s to %s", s.id, events[0].env.Type, last.env.Type)
		return
	}
	if n := r.count(s.id, schemas.TypeTurnEnd); n != 1 {
		r.fault("turn %s has %d ends", s.id, n)
	}
	may := s.may
	if len(may) == 0 {
		may = []string{schemas.StatusCompleted}
	}
	if !slices.Contains(may, last.Turn.Status) {
		r.fault("turn %s ended %s (%s: %s), want %v", s.id, last.Turn.Status, last.Turn.Code, last.Turn.Message, may)
	}
	r.checkCalls(s.id, events, last.Turn.Status)
}

// checkCalls: a start before its result, one of each, none open at the end; and a turn is in doubt only if a call is.
func (r *reader) checkCalls(turn string, events []output, status string) {
	r.Helper()
	started, results := make(map[string]bool), make(map[string]string)
	for _, o := range events {
		if o.Tool == nil {
			continue
		}
		key := o.Tool.IdempotencyKey
		if !strings.HasPrefix(key, turn+"/") {
			r.fault("turn %s has a call with the key %s", turn, key)
		}
		if o.env.Type == schemas.TypeToolStart {
			if started[key] || results[key] != "" {
				r.fault("call %s starts twice, or after its result", key)
			}
			started[key] = true
			continue
		}
		if results[key] != "" {
			r.fault("call %s has two results", key)
		}
		results[key] = o.Tool.Status
		if o.Tool.Started == nil || *o.Tool.Started != started[key] {
			r.fault("the result of call %s says started %v, and it was %v", key, o.Tool.Started, started[key])
		}
	}
	doubt := false
	for key := range started {
		if results[key] == "" {
			r.fault("call %s has no result before the turn's end", key)
		}
		doubt = doubt || results[key] == schemas.StatusIndeterminate
	}
	if doubt != (status == schemas.StatusIndeterminate) {
		r.fault("turn %s ended %s with the results %v", turn, status, results)
	}
}

// checkStrangers: no event of a turn that nobody sent, but for the refused.
func (r *reader) checkStrangers() {
	r.Helper()
	for _, o := range r.outputs {
		known := slices.ContainsFunc(r.sent, func(s sentTurn) bool { return s.id == o.env.TurnID })
		if !known && o.env.Type != schemas.TypeTurnRejected {
			r.fault("event %s belongs to no turn that was sent", o.env.EventID)
		}
	}
}

// checkLedger: what ran is what the events say, and what may run once ran once.
func (r *reader) checkLedger() {
	r.Helper()
	begun, tools := r.begun(), make(map[string]string)
	for _, e := range r.ledger() {
		tools[e.key] = e.tool
	}
	for key, n := range begun {
		if n > 1 && !mayRunAgain(tools[key]) {
			r.fault("the call %s of %s, which may run at most once, ran %d times", key, tools[key], n)
		}
	}
	announced := make(map[string]bool)
	for _, o := range r.outputs {
		if o.Tool == nil {
			continue
		}
		key := o.Tool.IdempotencyKey
		switch {
		case o.env.Type == schemas.TypeToolStart:
			announced[key] = true
		case o.Tool.Status == schemas.StatusOK && begun[key] == 0:
			r.fault("the call %s has a result and never ran", key)
		case o.Tool.Status == schemas.StatusIndeterminate && mayRunAgain(o.Tool.Tool):
			r.fault("the call %s of %s is in doubt although it may run again", key, o.Tool.Tool)
		}
		if o.env.Type == schemas.TypeToolResult && o.Tool.Status == schemas.StatusSkipped && begun[key] > 0 {
			r.fault("the call %s was skipped and ran", key)
		}
	}
	for key := range begun {
		// The start of a call that only reads may be lost with the worker that ran it; if its turn is then cancelled, or stopped
		// for killing its workers, nobody asks for the call again.
		turn, _, _ := strings.Cut(key, "/")
		forgiven := onlyReads(tools[key]) && (r.endedAs(turn) == schemas.StatusCancelled || r.endCode(turn) == schemas.CodeCrashLoop)
		if !announced[key] && !forgiven {
			r.fault("the call %s ran without a tool:start", key)
		}
	}
}

// checkSessions: the turns of a session one after another, in the order they were sent.
func (r *reader) checkSessions() {
	r.Helper()
	want, got, running := make(map[string][]string), make(map[string][]string), make(map[string]string)
	for _, s := range r.sent {
		want[s.session] = append(want[s.session], s.id)
	}
	// Events of a session have one key, so they are in one partition, which is read in order.
	for _, o := range r.outputs {
		session := o.env.SessionID
		switch o.env.Type {
		case schemas.TypeTurnStart:
			if running[session] != "" {
				r.fault("turn %s begins while %s of its session runs", o.env.TurnID, running[session])
			}
			running[session] = o.env.TurnID
			got[session] = append(got[session], o.env.TurnID)
		case schemas.TypeTurnEnd:
			running[session] = ""
		}
	}
	for session, ids := range want {
		if !slices.Equal(ids, got[session]) {
			r.fault("session %s ran %v, want %v", session, got[session], ids)
		}
	}
}
