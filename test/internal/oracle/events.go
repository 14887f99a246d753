package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lathe-run/lathe/schemas"
)

// events: each event once, and each record says what it holds. What comes twice is told here and then forgotten.
func (j *judge) events() {
	for _, s := range j.Sent {
		j.turns[s.ID] = &story{Turn: s, sent: true}
	}
	seen := make(map[string]bool, len(j.Outputs))
	once := make([]Output, 0, len(j.Outputs))
	for _, o := range j.Outputs {
		if seen[o.Env.EventID] {
			j.fault(EventOnce, "event %s was emitted twice, the second time at %s", o.Env.EventID, place(o.Rec))
			continue
		}
		seen[o.Env.EventID] = true
		once = append(once, o)
		j.labels(o)
		j.file(o)
	}
	e := *j.Evidence
	e.Outputs = once
	j.Evidence = &e
	for _, s := range j.turns {
		slices.SortStableFunc(s.events, func(a, b Output) int { return cmp.Compare(*a.Env.Seq, *b.Env.Seq) })
	}
}

// file puts an event to its turn.
func (j *judge) file(o Output) {
	s := j.turns[o.Env.TurnID]
	if s == nil {
		s = &story{Turn: Turn{ID: o.Env.TurnID}}
		j.turns[o.Env.TurnID] = s
	}
	if o.Env.Seq != nil {
		s.events = append(s.events, o)
	}
	if o.Env.Type == schemas.TypeTurnEnd {
		s.ends++
		s.status = o.Turn.Status
	}
}

func (j *judge) labels(o Output) {
	if got := header(o.Rec, "ce_id"); got != o.Env.EventID {
		j.fault(Stream, "event %s has the header ce_id %q", o.Env.EventID, got)
	}
	if want := "run.lathe." + strings.ReplaceAll(o.Env.Type, ":", "."); header(o.Rec, "ce_type") != want {
		j.fault(Stream, "event %s has the header ce_type %q", o.Env.EventID, header(o.Rec, "ce_type"))
	}
	if header(o.Rec, "ce_subject") != o.Env.TurnID || header(o.Rec, "content-type") == "" {
		j.fault(Stream, "event %s has the headers %v", o.Env.EventID, o.Rec.Headers)
	}
	if string(o.Rec.Key) != o.Env.SessionID {
		j.fault(Stream, "event %s of session %s has the key %q", o.Env.EventID, o.Env.SessionID, o.Rec.Key)
	}
}

// ended: no turn is lost, and none ends twice.
func (j *judge) ended() {
	var lost []string
	for _, s := range j.Sent {
		switch story := j.turns[s.ID]; {
		case story.ends > 1:
			j.fault(OneEnd, "turn %s has %d ends", s.ID, story.ends)
		case story.ends == 0 && !story.letter:
			lost = append(lost, s.ID)
		}
	}
	switch {
	case len(lost) == 0:
	case j.done():
		j.fault(OneEnd, "turns are lost: %v have no end", lost)
	default:
		j.fault(InTime, "%s after the last fault %d turns have no end: %v", j.Late, len(lost), shortened(lost))
	}
}

func shortened(ids []string) []string {
	const some = 20
	if len(ids) > some {
		return append(slices.Clone(ids[:some]), fmt.Sprintf("and %d more", len(ids)-some))
	}
	return ids
}

// turn: from a start to one end without a gap, the end as expected, and each call with its start before its result.
func (j *judge) turn(s *story) {
	if len(s.events) == 0 {
		return // It is told as lost.
	}
	ends := make(map[string]int64) // by topic; the events of a turn are on one partition of each
	for i, o := range s.events {
		if at, before := ends[o.Rec.Topic]; before && o.Rec.Offset < at {
			j.fault(Stream, "turn %s: event %s at %s stands before an earlier one", s.ID, o.Env.EventID, place(o.Rec))
		}
		ends[o.Rec.Topic] = o.Rec.Offset
		if *o.Env.Seq != int64(i) {
			j.fault(Stream, "turn %s: event %s has seq %d, want %d", s.ID, o.Env.EventID, *o.Env.Seq, i)
			break
		}
		if o.Env.SessionID != s.Session {
			j.fault(Stream, "turn %s: event %s says session %s", s.ID, o.Env.EventID, o.Env.SessionID)
		}
	}
	last := s.events[len(s.events)-1]
	if s.ends == 0 {
		return
	}
	if s.events[0].Env.Type != schemas.TypeTurnStart || last.Env.Type != schemas.TypeTurnEnd {
		j.fault(Stream, "turn %s goes from %s to %s", s.ID, s.events[0].Env.Type, last.Env.Type)
		return
	}
	may := s.May
	if len(may) == 0 {
		may = []string{schemas.StatusCompleted}
	}
	if !slices.Contains(may, last.Turn.Status) && !slices.Contains(may, last.Turn.Status+":"+string(last.Turn.Code)) {
		j.fault(Stream, "turn %s ended %s (%s: %s), want %v", s.ID, last.Turn.Status, last.Turn.Code, last.Turn.Message, may)
	}
	j.calls(s, last.Turn.Status)
}

// calls: a start before its result, one of each, none open at the end; and a turn is in doubt only if a call is.
func (j *judge) calls(s *story, status string) {
	started, results := make(map[string]bool), make(map[string]string)
	for _, o := range s.events {
		if o.Tool == nil {
			continue
		}
		key := o.Tool.IdempotencyKey
		if !strings.HasPrefix(key, s.ID+"/") {
			j.fault(CallOrder, "turn %s has a call with the key %s", s.ID, key)
		}
		if o.Env.Type == schemas.TypeToolStart {
			if started[key] || results[key] != "" {
				j.fault(CallOrder, "call %s starts twice, or after its result, at %s", key, place(o.Rec))
			}
			started[key] = true
			continue
		}
		if results[key] != "" {
			j.fault(Completed, "call %s has two results, the second at %s", key, place(o.Rec))
		}
		results[key] = o.Tool.Status
		if o.Tool.Started == nil || *o.Tool.Started != started[key] {
			j.fault(CallOrder, "the result of call %s at %s says started %v, and it was %v", key, place(o.Rec), o.Tool.Started != nil && *o.Tool.Started, started[key])
		}
	}
	doubt := false
	for key := range started {
		if results[key] == "" {
			j.fault(CallOrder, "call %s has no result before the turn's end", key)
		}
		doubt = doubt || results[key] == schemas.StatusIndeterminate
	}
	if doubt != (status == schemas.StatusIndeterminate) {
		j.fault(Stream, "turn %s ended %s with the results %v", s.ID, status, results)
	}
}

// strangers: no event of a turn that nobody sent, but for the refused.
func (j *judge) strangers() {
	for _, o := range j.Outputs {
		if !j.turns[o.Env.TurnID].sent && o.Env.Type != schemas.TypeTurnRejected {
			j.fault(Stream, "event %s belongs to no turn that was sent", o.Env.EventID)
		}
	}
}

// sessions: the turns of a session one after another, in the order of the log. Events of a session have one key, so they are in
// one partition, which is read in order.
func (j *judge) sessions() {
	want, got, running := make(map[string][]string), make(map[string][]string), make(map[string]string)
	for _, o := range j.Outputs {
		session := o.Env.SessionID
		switch o.Env.Type {
		case schemas.TypeTurnStart:
			if other := running[session]; other != "" && j.turns[other].ends > 0 {
				j.fault(SessionOrder, "turn %s begins at %s while %s of its session runs", o.Env.TurnID, place(o.Rec), other)
			}
			running[session] = o.Env.TurnID
			got[session] = append(got[session], o.Env.TurnID)
		case schemas.TypeTurnEnd:
			running[session] = ""
		}
	}
	for _, s := range j.Sent {
		if slices.Contains(got[s.Session], s.ID) { // One that never began is told as lost.
			want[s.Session] = append(want[s.Session], s.ID)
		}
	}
	for session, ids := range want {
		if known := slices.DeleteFunc(got[session], func(id string) bool { return !j.turns[id].sent }); !slices.Equal(ids, known) {
			j.fault(SessionOrder, "session %s ran %v, want %v", session, known, ids)
		}
	}
}
