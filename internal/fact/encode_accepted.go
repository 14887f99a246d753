package fact

import "github.com/lathe-run/lathe/schemas"

func (a *Accepted) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.text(1, a.TurnID)
	m.text(2, a.SessionID)
	m.text(3, a.AgentName)
	m.bytes(4, a.AgentHash)
	m.bytes(5, a.PayloadHash)
	m.key(6)
	m.b = a.Origin.appendTo(m.b)
	m.time(7, a.At)
	if !a.Deadline.IsZero() {
		m.time(8, a.Deadline)
	}
	if len(a.Metadata) > 0 {
		m.key(9)
		m.b = appendStringMap(m.b, a.Metadata)
	}
	if len(a.Messages) > 0 {
		m.key(10)
		m.b = appendList(m.b, a.Messages)
	}
	m.optTrue(11, a.Narrowed)
	if len(a.Tools) > 0 {
		m.key(12)
		m.b = appendTexts(m.b, a.Tools)
	}
	if a.Scope != nil {
		m.key(13)
		m.b = appendScope(m.b, a.Scope)
	}
	m.optBytes(14, a.OutputSchema)
	m.optText(15, a.Trace)
	m.optText(16, a.TraceState)
	m.text(17, a.Worker)
	m.optTrue(18, a.OwnHistory)
	m.optTrue(19, a.Lone)
	return m.b
}

func (o *Origin) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.text(1, o.Topic)
	m.int(2, int64(o.Partition))
	m.int(3, o.Offset)
	m.optBytes(4, o.TopicID)
	return m.b
}

func (msg *Message) appendTo(dst []byte) []byte {
	m := openMap(dst)
	m.text(1, string(msg.Role))
	m.optText(2, msg.Text)
	if len(msg.Parts) > 0 {
		m.key(3)
		m.b = appendHead(m.b, cborArray, uint64(len(msg.Parts)))
		for i := range msg.Parts {
			m.b = appendPart(m.b, &msg.Parts[i])
		}
	}
	if len(msg.Calls) > 0 {
		m.key(4)
		m.b = appendList(m.b, msg.Calls)
	}
	m.optText(5, msg.CallID)
	m.optText(6, msg.Tool)
	m.optTrue(7, msg.Failed)
	m.optBytes(8, msg.Opaque)
	m.optText(9, msg.Provider)
	return m.b
}

// appendPart writes a part. Its keys are those of its JSON form, since the type has no tags for CBOR.
func appendPart(dst []byte, p *schemas.Part) []byte {
	m := openMap(dst)
	m.named("type", p.Type)
	m.optNamed("text", p.Text)
	if len(p.Value) > 0 {
		m.name("value")
		m.b = append(appendHead(m.b, cborBytes, uint64(len(p.Value))), p.Value...)
	}
	m.optNamed("url", p.URL)
	m.optNamed("data", p.Data)
	m.optNamed("media_type", p.MediaType)
	return m.b
}

// appendScope is the same for a scope.
func appendScope(dst []byte, s *schemas.Scope) []byte {
	m := openMap(dst)
	m.optNamed("principal_id", s.PrincipalID)
	m.optNamed("project_id", s.ProjectID)
	if s.Permissions != nil {
		m.name("permissions")
		m.b = appendTexts(m.b, s.Permissions)
	}
	return m.b
}

func (m *mapWriter) name(k string) {
	m.b[m.head]++
	m.b = appendText(m.b, k)
}

func (m *mapWriter) named(k, s string) {
	m.name(k)
	m.b = appendText(m.b, s)
}

func (m *mapWriter) optNamed(k, s string) {
	if s != "" {
		m.named(k, s)
	}
}

func appendText(dst []byte, s string) []byte {
	return append(appendHead(dst, cborText, uint64(len(s))), s...)
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = appendHead(dst, cborArray, uint64(len(texts)))
	for _, s := range texts {
		dst = appendText(dst, s)
	}
	return dst
}

// appendStringMap writes a map in the order in which it gives its keys, which is no order.
func appendStringMap(dst []byte, values map[string]string) []byte {
	dst = appendHead(dst, cborMap, uint64(len(values)))
	for k, v := range values {
		dst = appendText(appendText(dst, k), v)
	}
	return dst
}
