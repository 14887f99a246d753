package dedupe

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
	"github.com/lathe-run/lathe/schemas"
)

// State keys are a letter for the kind and an id. Ids hold no slash.
const (
	journalPrefix = "j"
	cancelPrefix  = "c"
)

func journalKey(turnID string) string     { return journalPrefix + turnID }
func turnKey(turnID string) string        { return "t" + turnID }
func agentKey(hash []byte) string         { return "a" + hex.EncodeToString(hash) }
func historyPrefix(session string) string { return "h" + session + "/" }

// cancelKey has the session too, so that a cancel in the name of another session does not take the place of the right one.
func cancelKey(turnID, session string) string { return cancelPrefix + turnID + "/" + session }

// historyKey is the key of one part of a session's turn number n: fixed width, so that they sort in order.
func historyKey(session string, n uint32, part int) string {
	return fmt.Sprintf("h%s/%08x/%04x", session, n, part)
}

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
	recordSize = 1 + hashSize + 1 + 8
)

// statusCodes number the statuses of ended turns; the numbers are stored.
var statusCodes = [...]string{ //nolint:gochecknoglobals // A constant table.
	1: schemas.StatusCompleted, 2: schemas.StatusFailed, 3: schemas.StatusCancelled, 4: schemas.StatusOutcomeUnknown, 5: schemas.StatusIndeterminate,
}

func (r record) encode() ([]byte, error) {
	if len(r.hash) != hashSize {
		return nil, fmt.Errorf("store a turn record: its payload hash has %d bytes, not %d", len(r.hash), hashSize)
	}
	code := 0
	for i, s := range statusCodes {
		if s == r.status {
			code = i
		}
	}
	b := append(make([]byte, 0, recordSize), statestore.Format)
	b = append(b, r.hash...)
	b = append(b, byte(code))
	return binary.BigEndian.AppendUint64(b, uint64(r.at.UnixMilli())), nil
}

func decodeRecord(b []byte) (record, error) {
	if len(b) != recordSize || b[0] != statestore.Format {
		return record{}, fmt.Errorf("read a turn record: %w", statestore.ErrFormat)
	}
	code := int(b[1+hashSize])
	if code >= len(statusCodes) {
		return record{}, fmt.Errorf("read a turn record of status %d: %w", code, statestore.ErrFormat)
	}
	return record{
		hash: b[1 : 1+hashSize], status: statusCodes[code],
		at: time.UnixMilli(int64(binary.BigEndian.Uint64(b[2+hashSize:]))).UTC(), //nolint:gosec // Stored as two's complement.
	}, nil
}
