package txn

import (
	"strconv"
	"strings"
)

const (
	metadataVersion = "1"
	metadataFrom    = "from="
	metadataClean   = "clean"
)

// Metadata is what a cycle writes beside each committed offset. It tells whose cycle it was, so that a worker that
// never learnt the outcome of its own can read it off.
type Metadata struct {
	// TxID is the transactional id of the slot. It holds no '|'.
	TxID string
	// Incarnation tells two processes with one transactional id apart.
	Incarnation uint64
	// CID is the number of the cycle.
	CID uint64
	// ChangelogNext is the first changelog offset after the cycle.
	ChangelogNext int64
	// ChangelogFrom is the log start of the changelog from which on it has all of the state: 0 unless a person has accepted that
	// what lay before is lost.
	ChangelogFrom int64
	// Clean says that the partition was drained: nothing of it was in flight.
	Clean bool
}

// String returns the text that ParseMetadata reads.
func (m Metadata) String() string {
	b := make([]byte, 0, len(m.TxID)+64)
	b = append(b, metadataVersion...)
	b = append(b, '|')
	b = append(b, m.TxID...)
	b = append(b, '|')
	b = strconv.AppendUint(b, m.Incarnation, 16)
	b = append(b, '|')
	b = strconv.AppendUint(b, m.CID, 10)
	b = append(b, '|')
	b = strconv.AppendInt(b, m.ChangelogNext, 10)
	if m.ChangelogFrom > 0 {
		b = append(b, "|"+metadataFrom...)
		b = strconv.AppendInt(b, m.ChangelogFrom, 10)
	}
	if m.Clean {
		b = append(b, "|"+metadataClean...)
	}
	return string(b)
}

// ParseMetadata reads what String wrote. It reports false for the metadata of anything else.
func ParseMetadata(s string) (Metadata, bool) {
	parts := strings.Split(s, "|")
	if len(parts) < 5 || parts[0] != metadataVersion || parts[1] == "" {
		return Metadata{}, false
	}
	m := Metadata{TxID: parts[1]}
	var err error
	if m.Incarnation, err = strconv.ParseUint(parts[2], 16, 64); err != nil {
		return Metadata{}, false
	}
	if m.CID, err = strconv.ParseUint(parts[3], 10, 64); err != nil {
		return Metadata{}, false
	}
	if m.ChangelogNext, err = strconv.ParseInt(parts[4], 10, 64); err != nil || m.ChangelogNext < 0 {
		return Metadata{}, false
	}
	var ok bool
	if m.ChangelogFrom, m.Clean, ok = parseMarks(parts[5:]); !ok {
		return Metadata{}, false
	}
	return m, true
}

// parseMarks reads what is there only at times, in its order.
func parseMarks(parts []string) (from int64, clean, ok bool) {
	if len(parts) > 0 {
		if text, found := strings.CutPrefix(parts[0], metadataFrom); found {
			var err error
			if from, err = strconv.ParseInt(text, 10, 64); err != nil || from <= 0 {
				return 0, false, false
			}
			parts = parts[1:]
		}
	}
	if len(parts) > 0 && parts[0] == metadataClean {
		clean, parts = true, parts[1:]
	}
	return from, clean, len(parts) == 0
}
