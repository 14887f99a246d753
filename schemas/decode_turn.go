package schemas

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// turnFaults reads turn events and keeps the first thing that is wrong with one. It reads on after a fault, so that the
// ids of a refused event are known.
type turnFaults struct {
	err *Error
	// badIDs says that turn_id or session_id is missing or not valid.
	badIDs bool
}

func (f *turnFaults) add(path, format string, args ...any) {
	if f.err == nil {
		f.err = Errorf(CodeInvalidTurn, format, args...)
		f.err.Path = path
	}
}

// unsupported refuses a field whose feature this release does not have. Ignoring it would run another turn than the
// producer asked for.
func (f *turnFaults) unsupported(path string) {
	f.add(path, "not supported by this release")
}

func isNull(v []byte) bool { return v[0] == 'n' }

// str reads a string; null is the empty one.
func (f *turnFaults) str(path string, v []byte) string {
	switch {
	case v[0] == '"':
		return unquoteJSON(v)
	case !isNull(v):
		f.add(path, "must be a string")
	}
	return ""
}

// free reads free-form JSON; null is none.
func (f *turnFaults) free(v []byte) []byte {
	if isNull(v) {
		return nil
	}
	return append([]byte{}, v...)
}

// object calls member for each member of an object and returns false if v is none. member says whether it knows the key. A key that
// it knows and that is given twice is refused: readers of JSON differ in which one they take.
func (f *turnFaults) object(path string, v []byte, member func(key string, v []byte) bool) bool {
	if isNull(v) {
		return false
	}
	if v[0] != '{' {
		f.add(path, "must be an object")
		return false
	}
	seen := make([]string, 0, 16) // Objects of the contract have few.
	eachMember(v, func(key string, v []byte) {
		switch {
		case !member(key, v):
		case slices.Contains(seen, key):
			f.add(strings.TrimPrefix(path+"."+key, "."), "given twice")
		default:
			seen = append(seen, key)
		}
	})
	return true
}

// array calls item for each item of an array and returns false if v is none.
func (f *turnFaults) array(path string, v []byte, item func(path string, v []byte)) bool {
	if isNull(v) {
		return false
	}
	if v[0] != '[' {
		f.add(path, "must be an array")
		return false
	}
	eachItem(v, func(i int, v []byte) { item(indexed(path, i), v) })
	return true
}

func indexed(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// turnFromJSON reads the event from a checked JSON object.
func (f *turnFaults) turnFromJSON(b []byte) *TurnEvent {
	ev := &TurnEvent{}
	f.object("", b, func(key string, v []byte) bool {
		switch key {
		case "type":
			ev.Type = f.str(key, v)
		case "turn_id":
			ev.TurnID = f.str(key, v)
		case "session_id":
			ev.SessionID = f.str(key, v)
		case "agent":
			ev.Agent = f.str(key, v)
		case "messages":
			f.array(key, v, func(path string, v []byte) { ev.Messages = append(ev.Messages, f.message(path, v)) })
		case "tools":
			ev.Tools = f.strings(key, v)
		case "scope":
			ev.Scope = f.scope(key, v)
		case "metadata":
			ev.Metadata = f.metadata(key, v)
		case "deadline":
			ev.Deadline = f.deadline(key, f.str(key, v), isNull(v))
		case "output_schema":
			ev.OutputSchema = f.free(v)
		case "reason":
			ev.Reason = f.str(key, v)
		case "calls", "groups", "budget":
			if !isNull(v) {
				f.unsupported(key)
			}
		default:
			return false
		}
		return true
	})
	return ev
}

func (f *turnFaults) message(path string, v []byte) Message {
	var m Message
	if isNull(v) {
		f.add(path, "must be an object")
	}
	f.object(path, v, func(key string, v []byte) bool {
		switch key {
		case "role":
			m.Role = f.str(path+".role", v)
		case "content":
			f.content(path+".content", v, &m)
		default:
			return false
		}
		return true
	})
	return m
}

func (f *turnFaults) content(path string, v []byte, m *Message) {
	switch v[0] {
	case '"':
		m.Text = unquoteJSON(v)
	case '[':
		m.Parts = []Part{}
		f.array(path, v, func(path string, v []byte) { m.Parts = append(m.Parts, f.part(path, v)) })
	case 'n':
	default:
		f.add(path, "must be a string or an array of parts")
	}
}

func (f *turnFaults) part(path string, v []byte) Part {
	var p Part
	if isNull(v) {
		f.add(path, "must be an object")
	}
	f.object(path, v, func(key string, v []byte) bool {
		switch key {
		case "type":
			p.Type = f.str(path+".type", v)
		case "text":
			p.Text = f.str(path+".text", v)
		case "value":
			p.Value = f.free(v)
		case "url":
			p.URL = f.str(path+".url", v)
		case "data":
			p.Data = f.str(path+".data", v)
		case "media_type":
			p.MediaType = f.str(path+".media_type", v)
		default:
			return false
		}
		return true
	})
	return p
}

// strings reads an array of strings: nil if it is absent, not nil if it is empty.
func (f *turnFaults) strings(path string, v []byte) []string {
	out := []string{}
	ok := f.array(path, v, func(path string, v []byte) {
		if isNull(v) {
			f.add(path, "must be a string")
		}
		out = append(out, f.str(path, v))
	})
	if !ok {
		return nil
	}
	return out
}

func (f *turnFaults) scope(path string, v []byte) *Scope {
	s := &Scope{}
	ok := f.object(path, v, func(key string, v []byte) bool {
		switch key {
		case "principal_id":
			s.PrincipalID = f.str(path+".principal_id", v)
		case "project_id":
			s.ProjectID = f.str(path+".project_id", v)
		case "permissions":
			if !isNull(v) {
				f.unsupported(path + ".permissions")
			}
		default:
			return false
		}
		return true
	})
	if !ok {
		return nil
	}
	return s
}

// metadata reads the map of strings. Its keys are the producer's, so they do not stand in an error.
func (f *turnFaults) metadata(path string, v []byte) map[string]string {
	if isNull(v) {
		return nil
	}
	if v[0] != '{' {
		f.add(path, "must be an object of strings")
		return nil
	}
	out := make(map[string]string)
	n := 0
	eachMember(v, func(key string, v []byte) {
		if v[0] != '"' {
			f.add(path, "must be an object of strings")
			return
		}
		n++
		out[key] = unquoteJSON(v)
	})
	if n != len(out) {
		f.add(path, "a key is given twice")
	}
	if n == 0 {
		return nil // The default, in whichever way it is said.
	}
	return out
}

// deadline reads a time; what is finer than a millisecond is cut off, since Avro has no room for it.
func (f *turnFaults) deadline(path, text string, absent bool) *time.Time {
	if absent {
		return nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		f.add(path, "must be a time like 2006-01-02T15:04:05.000Z")
		return nil
	}
	return f.instant(path, t.UnixMilli())
}

func (f *turnFaults) instant(path string, millis int64) *time.Time {
	t := time.UnixMilli(millis).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		f.add(path, "must be a time of the years 0 to 9999")
		return nil
	}
	return &t
}

// turnFromNative reads the event from a value in the shape of our Avro schema.
func (f *turnFaults) turnFromNative(m map[string]any, maxDepth int) *TurnEvent {
	n := nativeReader{faults: f, maxDepth: maxDepth}
	ev := &TurnEvent{
		Type: n.str(m, "type"), TurnID: n.str(m, "turn_id"), SessionID: n.str(m, "session_id"), Agent: n.str(m, "agent"),
		Tools: n.strings(m, "tools"), Metadata: n.stringMap(m, "metadata"), Reason: n.str(m, "reason"),
		OutputSchema: n.free(m, "output_schema", "output_schema"),
	}
	messages, _ := m["messages"].([]any)
	for i, v := range messages {
		ev.Messages = append(ev.Messages, n.message(indexed("messages", i), v))
	}
	if s, ok := m["scope"].(map[string]any); ok {
		ev.Scope = &Scope{PrincipalID: n.str(s, "principal_id"), ProjectID: n.str(s, "project_id")}
		if s["permissions"] != nil {
			f.unsupported("scope.permissions")
		}
	}
	if millis, ok := m["deadline"].(int64); ok {
		ev.Deadline = f.instant("deadline", millis)
	}
	for _, field := range []string{"calls", "groups", "budget"} {
		if m[field] != nil {
			f.unsupported(field)
		}
	}
	return ev
}

// nativeReader takes values out of maps in the shape of our Avro schemas. The shape is certain, because projections make
// it; what is absent is nil there.
type nativeReader struct {
	faults   *turnFaults
	maxDepth int
}

func (*nativeReader) str(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func (*nativeReader) strings(m map[string]any, key string) []string {
	list, ok := m[key].([]any)
	if !ok {
		return nil
	}
	out := make([]string, len(list))
	for i, v := range list {
		out[i], _ = v.(string)
	}
	return out
}

func (*nativeReader) stringMap(m map[string]any, key string) map[string]string {
	values, _ := m[key].(map[string]any)
	if len(values) == 0 {
		return nil
	}
	out := make(map[string]string, len(values))
	for k, v := range values {
		out[k], _ = v.(string)
	}
	return out
}

// free reads a string that holds JSON; one that holds null is none.
func (n *nativeReader) free(m map[string]any, key, path string) []byte {
	s, ok := m[key].(string)
	if !ok {
		return nil
	}
	if err := checkJSON([]byte(s), n.maxDepth); err != nil {
		n.faults.add(path, "must hold JSON: %v", err)
		return nil
	}
	b := []byte(s)
	if b = b[skipJSONSpace(b, 0):]; isNull(b) {
		return nil
	}
	return b
}

func (n *nativeReader) message(path string, v any) Message {
	in, _ := v.(map[string]any)
	m := Message{Role: n.str(in, "role"), Text: n.str(in, "content")}
	parts, ok := in["parts"].([]any)
	if !ok {
		return m
	}
	if in["content"] != nil {
		n.faults.add(path, "has both content and parts")
	}
	m.Parts = make([]Part, len(parts))
	for i, v := range parts {
		p, _ := v.(map[string]any)
		m.Parts[i] = Part{
			Type: n.str(p, "type"), Text: n.str(p, "text"), URL: n.str(p, "url"), Data: n.str(p, "data"),
			MediaType: n.str(p, "media_type"), Value: n.free(p, "value", fmt.Sprintf("%s.content[%d].value", path, i)),
		}
	}
	return m
}
