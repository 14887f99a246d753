package schemas

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/gowebpki/jcs"
)

// The limits of a turn event's fields.
const (
	maxTurnID    = 128
	maxSessionID = 256
	maxMetadata  = 4 << 10
)

// checkTurn checks an event against the limits of the contract. What is not a matter of the event alone (its key, its
// agent, its tools) is checked where that is known.
func (f *turnFaults) checkTurn(ev *TurnEvent) {
	f.checkIDs(ev)
	switch ev.Type {
	case "", InputTurn:
		f.checkMessages(ev)
	case InputCancel:
	default:
		f.add("type", "must be turn or cancel")
	}
	if n := metadataSize(ev.Metadata); n > maxMetadata {
		f.add("metadata", "has %d bytes, more than %d", n, maxMetadata)
		ev.Metadata = nil
	}
	if s := ev.OutputSchema; len(s) > 0 && s[0] != '{' {
		f.add("output_schema", "must be a JSON Schema that is an object")
	}
}

// checkIDs puts a fault of an id before any other that was found: without ids nobody can be told of the rest.
func (f *turnFaults) checkIDs(ev *TurnEvent) {
	switch {
	case !isID(ev.TurnID, maxTurnID):
		f.badIDs = true
		f.err = nil
		f.add("turn_id", "must be 1 to %d characters of A-Z a-z 0-9 . _ : ~ @ + = -", maxTurnID)
	case ev.SessionID != "" && !isID(ev.SessionID, maxSessionID):
		f.badIDs = true
		f.err = nil
		f.add("session_id", "must be 1 to %d characters of A-Z a-z 0-9 . _ : ~ @ + = -", maxSessionID)
	}
}

func isID(s string, maxLen int) bool {
	if s == "" || len(s) > maxLen {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', isDigit(c):
		case c == '.', c == '_', c == ':', c == '~', c == '@', c == '+', c == '=', c == '-':
		default:
			return false
		}
	}
	return true
}

func metadataSize(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

func (f *turnFaults) checkMessages(ev *TurnEvent) {
	if len(ev.Messages) == 0 {
		f.add("messages", "a turn needs messages")
	}
	for i := range ev.Messages {
		m := &ev.Messages[i]
		path := indexed("messages", i)
		switch m.Role {
		case "user", "assistant", "system":
		default:
			f.add(path+".role", "must be user, assistant or system")
		}
		if m.Text == "" && len(m.Parts) == 0 {
			f.add(path+".content", "must not be empty")
		}
		for j := range m.Parts {
			f.checkPart(indexed(path+".content", j), &m.Parts[j])
		}
	}
}

func (f *turnFaults) checkPart(path string, p *Part) {
	switch p.Type {
	case "text":
		if p.Text == "" {
			f.add(path+".text", "must not be empty")
		}
	case "json":
		if len(p.Value) == 0 {
			f.add(path+".value", "must be given, and not null")
		}
	case "image":
		f.checkImage(path, p)
	default:
		f.add(path+".type", "must be text, json or image")
	}
}

func (f *turnFaults) checkImage(path string, p *Part) {
	switch {
	case (p.URL == "") == (p.Data == ""):
		f.add(path, "an image needs either url or data")
	case p.Data != "" && p.MediaType == "":
		f.add(path+".media_type", "must be given with data")
	case p.Data != "":
		if _, err := base64.StdEncoding.DecodeString(p.Data); err != nil {
			f.add(path+".data", "must be base64")
		}
	}
}

// payloadHashVersion is the first byte of a payload hash: what it is made of. A change makes every event whose turn is
// remembered a conflict, so a new version comes with a way to compare with the old one.
const payloadHashVersion = 1

// payloadHash is what tells a repeated event from a conflict: a version byte and the SHA-256 of the canonical JSON
// (RFC 8785) of the fields as sent, without those that are absent, null or equal to the schema's default, and without
// metadata. Free-form values are part of it as JSON, so it does not depend on the encoding; fields of later releases are
// not, so neither on the release.
func (f *turnFaults) payloadHash(ev *TurnEvent) []byte {
	o := spareObject()
	defer objects.Put(o)
	if canonicalTurn(o, ev); o.err != nil {
		f.notCanonical(ev)
		return nil
	}
	sum := sha256.Sum256(o.b)
	return append([]byte{payloadHashVersion}, sum[:]...)
}

// canonicalTurn writes what is hashed. Only free-form values go through jcs, which is slow for plain text.
func canonicalTurn(o *jsonObject, ev *TurnEvent) {
	sent := *ev
	sent.Metadata = nil
	o.canonical = true
	o.write(&sent)
}

// notCanonical finds the free-form value that has no canonical form: only those can fail.
func (f *turnFaults) notCanonical(ev *TurnEvent) {
	const text = "holds a key twice, a number beyond a double, or half of a surrogate pair"
	for i := range ev.Messages {
		for j := range ev.Messages[i].Parts {
			v := ev.Messages[i].Parts[j].Value
			if _, err := jcs.Transform(v); len(v) > 0 && err != nil {
				f.add(indexed(indexed("messages", i)+".content", j)+".value", text)
			}
		}
	}
	if _, err := jcs.Transform(ev.OutputSchema); len(ev.OutputSchema) > 0 && err != nil {
		f.add("output_schema", text)
	}
	f.add("", "a free-form value "+text)
}
