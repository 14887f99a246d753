package fact

// What an item has beside its texts: keys, heads, numbers and times, generously.
const (
	factRoom = 192
	itemRoom = 64
)

// MostBytes is the most bytes that the frame of a fact has, or 0 for a fact of which that is not known without encoding it. A fact of
// which it is known can be encoded.
func MostBytes(f Fact) int {
	switch f := f.(type) {
	case *Accepted:
		return f.most()
	case *Responded:
		return factRoom + len(f.Worker) + f.most() + mostOf(f.Wave)
	case *Began:
		return factRoom + len(f.Worker) + mostOf(f.Calls)
	case *Finished:
		return factRoom + len(f.Worker) + f.most()
	case *NotBegun, *Cancelled, *Ended, *Restarted:
	}
	return 0
}

// most knows an ordinary turn.
func (a *Accepted) most() int {
	if len(a.Metadata) > 0 || a.Scope != nil {
		return 0
	}
	n := 2*factRoom + len(a.TurnID) + len(a.SessionID) + len(a.AgentName) + len(a.AgentHash) + len(a.PayloadHash) + len(a.Origin.Topic) +
		len(a.Origin.TopicID) + len(a.OutputSchema) + len(a.Trace) + len(a.TraceState) + len(a.Worker)
	for _, name := range a.Tools {
		n += itemRoom + len(name)
	}
	for i := range a.Messages {
		m := &a.Messages[i]
		if len(m.Parts) > 0 || len(m.Calls) > 0 {
			return 0
		}
		n += itemRoom + len(m.Role) + len(m.Text) + len(m.CallID) + len(m.Tool) + len(m.Opaque) + len(m.Provider)
	}
	return n
}

func (r *Response) most() int {
	n := factRoom + len(r.Text) + len(r.FinishReason) + len(r.Provider) + len(r.Model) + len(r.Opaque)
	for i := range r.Calls {
		c := &r.Calls[i]
		n += itemRoom + len(c.Name) + len(c.CallID) + len(c.Arguments)
	}
	return n
}

func (r *Result) most() int {
	return factRoom + len(r.CallID) + mostOfTool(&r.Tool) + len(r.Status) + len(r.Code) + len(r.Message) + len(r.Output) + len(r.ForModel) + len(r.InputHash)
}

func mostOf(calls []Call) int {
	n := 0
	for i := range calls {
		c := &calls[i]
		n += itemRoom + len(c.CallID) + mostOfTool(&c.Tool) + len(c.Input)
	}
	return n
}

func mostOfTool(t *Tool) int {
	return itemRoom + len(t.Name) + len(t.Version) + len(t.Effect) + len(t.Idempotency) + len(t.Fingerprint)
}
