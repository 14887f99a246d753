package dedupe

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// State keys are a letter for the kind and an id. Ids hold no slash.
const (
	journalPrefix = "j"
	turnPrefix    = "t"
	cancelPrefix  = "c"
	agentPrefix   = "a"
	historyLetter = "h"
)

func journalKey(turnID string) string     { return journalPrefix + turnID }
func turnKey(turnID string) string        { return turnPrefix + turnID }
func agentKey(hash []byte) string         { return agentPrefix + hex.EncodeToString(hash) }
func historyPrefix(session string) string { return historyLetter + session + "/" }

// turnKeys are the keys of a turn's journal and of its record, in one piece of memory.
func turnKeys(turnID string) (journal, ended string) {
	both := journalPrefix + turnID + turnPrefix + turnID
	at := len(journalPrefix) + len(turnID)
	return both[:at], both[at:]
}

// agentHash is the hash in an agent's key, as the store's maps have it.
func agentHash(key string) string {
	b, _ := hex.DecodeString(key[len(agentPrefix):]) // The key was made by agentKey.
	return string(b)
}

// firstRecord ends the key of the first record of a journal.
const firstRecord = "/00000000"

// stampSize is the head of a value that expires: the format version, and when it was current in milliseconds.
const stampSize = 1 + 8

// stamped begins a value that expires, with room for a body.
func stamped(at time.Time, room int) []byte { return appendStamp(make([]byte, 0, stampSize+room), at) }

func appendStamp(dst []byte, at time.Time) []byte {
	return binary.BigEndian.AppendUint64(append(dst, statestore.Format), uint64(at.UnixMilli()))
}

// stampOf reads when a value was current; false when it has no such head.
func stampOf(value []byte) (time.Time, bool) {
	if len(value) < stampSize {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(value[1:]))).UTC(), true //nolint:gosec // Stored as two's complement.
}

// stampedBody is a value that expires without its head.
func stampedBody(value []byte) ([]byte, error) {
	body, err := statestore.Body(value)
	if err != nil {
		return nil, err
	}
	if len(value) < stampSize {
		return nil, errShort
	}
	return body[stampSize-1:], nil
}

var errShort = errors.New("the value is too short")

// cancelKey has the session too, so that a cancel in the name of another session does not take the place of the right one.
func cancelKey(turnID, session string) string { return cancelPrefix + turnID + "/" + session }

// historyKey is the key of one part of a session's turn number n: fixed width, so that they sort in order.
func historyKey(session string, n uint32, part int) string {
	b := make([]byte, 0, len(session)+len("h//00000000/0000"))
	b = append(append(append(b, historyLetter...), session...), '/')
	b = append(appendHex(b, uint64(n), 8), '/')
	return string(appendHex(b, uint64(part), 4)) //nolint:gosec // Parts are counted from 0.
}

// appendHex appends n in hex, with zeros in front up to a width.
func appendHex(dst []byte, n uint64, width int) []byte {
	var digits [16]byte
	text := strconv.AppendUint(digits[:0], n, 16)
	for range width - len(text) {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

// isFirstPart reports whether a history key is that of a turn's first part.
func isFirstPart(key string) bool { return strings.HasSuffix(key, "/0000") }

// sessionOf is the history prefix that a history key has.
func sessionOf(key string) string { return key[:strings.IndexByte(key, '/')+1] }

// historyNumber reads the turn number out of a history key.
func historyNumber(session, key string) (uint32, error) {
	at := len(session) + 2
	if len(key) < at+8 {
		return 0, fmt.Errorf("read history key %q: too short", key)
	}
	var b [4]byte
	if _, err := hex.Decode(b[:], []byte(key[at:at+8])); err != nil {
		return 0, fmt.Errorf("read history key %q: %w", key, err)
	}
	return binary.BigEndian.Uint32(b[:]), nil
}

// record is the turn record: what is left of an ended turn, of fixed size.
type record struct {
	hash   []byte
	status string
	at     time.Time
}

const (
	hashSize   = 33
	recordSize = stampSize + hashSize + 1
)

// statusCodes number the statuses of ended turns; the numbers are stored.
var statusCodes = [...]string{ //nolint:gochecknoglobals // A constant table.
	1: schemas.StatusCompleted, 2: schemas.StatusFailed, 3: schemas.StatusCancelled, 4: schemas.StatusOutcomeUnknown, 5: schemas.StatusIndeterminate,
}

func (r record) append(dst []byte) ([]byte, error) {
	if len(r.hash) != hashSize {
		return nil, fmt.Errorf("store a turn record: its payload hash has %d bytes, not %d", len(r.hash), hashSize)
	}
	code := 0
	for i, s := range statusCodes {
		if s == r.status {
			code = i
		}
	}
	return append(append(appendStamp(dst, r.at), r.hash...), byte(code)), nil
}

func decodeRecord(b []byte) (record, error) {
	if len(b) != recordSize || b[0] != statestore.Format {
		return record{}, fmt.Errorf("read a turn record: %w", statestore.ErrFormat)
	}
	code := int(b[stampSize+hashSize])
	if code >= len(statusCodes) {
		return record{}, fmt.Errorf("read a turn record of status %d: %w", code, statestore.ErrFormat)
	}
	at, _ := stampOf(b)
	return record{hash: b[stampSize : stampSize+hashSize], status: statusCodes[code], at: at}, nil
}
