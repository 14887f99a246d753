package turn

import (
	"github.com/lathe-run/lathe/internal/fact"
)

// request is what the model is asked at a step: the session's history, what the turn brought, and its steps so far.
func (r *run) request(step int) *fact.Request {
	t := r.turn
	return &fact.Request{
		Spec: t.Agent.Model, TurnID: t.Accepted.TurnID, Session: t.Accepted.SessionID, Agent: t.Agent.Name, Step: step,
		System:       t.Agent.System,
		Messages:     r.messages(step),
		Tools:        r.offer.Specs(),
		OutputSchema: t.Accepted.OutputSchema,
		Draining:     t.Draining,
	}
}

func (r *run) messages(step int) []fact.Message {
	t := r.turn
	said := r.said(step)
	limit := t.Agent.Limits.ContextBytes - len(t.Agent.System)
	if r.sizeSaid <= limit {
		return said
	}
	return fitContext(said[:r.ownSaid:r.ownSaid], said[r.ownSaid:], limit)
}

// said are the session's history and the messages of the turn before a step. They only grow, so each is made once; a model that still has
// the messages of an earlier step has none of those that are added.
func (r *run) said(step int) []fact.Message {
	if r.messagesSaid == nil {
		r.beginSaid()
	}
	for ; r.stepsSaid < step; r.stepsSaid++ {
		had := len(r.messagesSaid)
		results := r.known.results(r.stepsSaid)
		r.messagesSaid = fact.AppendStep(r.messagesSaid, &r.known.responses[r.stepsSaid].Response, results)
		r.sizeSaid += sizeOf(r.messagesSaid[had:])
	}
	return r.messagesSaid[:len(r.messagesSaid):len(r.messagesSaid)]
}

func (r *run) beginSaid() {
	t := r.turn
	var history []fact.Message
	if !t.Accepted.OwnHistory {
		history = t.History
	}
	r.ownSaid = len(history)
	r.messagesSaid = append(make([]fact.Message, 0, len(history)+len(t.Accepted.Messages)+8), history...)
	r.messagesSaid = append(r.messagesSaid, t.Accepted.Messages...)
	r.sizeSaid = sizeOf(r.messagesSaid)
}

// fitContext leaves out the oldest messages until the rest fits the limit: first of the history, from the front to the next
// user message, so that a call is never split from its result; then the oldest steps of the turn itself, whole.
func fitContext(history, own []fact.Message, limit int) []fact.Message {
	total := sizeOf(history) + sizeOf(own)
	for len(history) > 0 && total > limit {
		n := 1
		for n < len(history) && history[n].Role != fact.RoleUser {
			n++
		}
		total -= sizeOf(history[:n])
		history = history[n:]
	}
	for total > limit {
		from, to := oldestStep(own)
		if from < 0 {
			break
		}
		total -= sizeOf(own[from:to])
		own = append(own[:from:from], own[to:]...)
	}
	if len(history) == 0 {
		return own
	}
	return append(history[:len(history):len(history)], own...)
}

// oldestStep finds the first response with its results that is not the last one; from is -1 when there is none.
func oldestStep(own []fact.Message) (from, to int) {
	from = -1
	for i, m := range own {
		if m.Role != fact.RoleAssistant || len(m.Calls) == 0 {
			continue
		}
		if from >= 0 {
			return from, i
		}
		from = i
	}
	return -1, 0
}

func sizeOf(messages []fact.Message) int {
	n := 0
	for i := range messages {
		m := &messages[i]
		n += len(m.Text) + len(m.Opaque) + 16
		for _, c := range m.Calls {
			n += len(c.Name) + len(c.Arguments)
		}
		for _, p := range m.Parts {
			n += len(p.Text) + len(p.Value) + len(p.URL) + len(p.Data)
		}
	}
	return n
}
