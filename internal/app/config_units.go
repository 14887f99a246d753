package app

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// ByteSize is a number of bytes. As text it is a whole number, alone or with B, KiB, MiB or GiB.
//
//nolint:recvcheck // Reading text changes it; the rest takes it as the number it is.
type ByteSize int64

// The units of a ByteSize.
const (
	KiB ByteSize = 1 << 10
	MiB ByteSize = 1 << 20
	GiB ByteSize = 1 << 30
)

var (
	errNotSize     = errors.New("is not a size such as 512KiB, 1MiB or 2GiB")
	errNotDuration = errors.New("is not a duration such as 500ms, 30s, 10m or 15d")
)

// UnmarshalText reads a size. Units of a thousand (KB, MB) are refused: they are mostly meant as KiB and MiB.
func (b *ByteSize) UnmarshalText(text []byte) error {
	digits := strings.TrimSpace(string(text))
	unit := ByteSize(1)
	for _, u := range []struct {
		suffix string
		size   ByteSize
	}{{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"B", 1}} {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > math.MaxInt64/uint64(unit) {
		return errNotSize
	}
	*b = ByteSize(n) * unit
	return nil
}

// String writes the size in the largest unit that divides it.
func (b ByteSize) String() string {
	switch {
	case b != 0 && b%GiB == 0:
		return strconv.FormatInt(int64(b/GiB), 10) + "GiB"
	case b != 0 && b%MiB == 0:
		return strconv.FormatInt(int64(b/MiB), 10) + "MiB"
	case b != 0 && b%KiB == 0:
		return strconv.FormatInt(int64(b/KiB), 10) + "KiB"
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// parseDuration reads what time.ParseDuration reads, and days of 24 hours before it: 15d, 1d12h, 0.5d.
func parseDuration(text string) (time.Duration, error) {
	// No unit of Go's holds a d, so the first one ends the days.
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		return goDuration(text)
	}
	if days == "" || strings.Trim(days, "0123456789.") != "" {
		return 0, errNotDuration
	}
	hours, err := goDuration(days + "h")
	if err != nil || hours > math.MaxInt64/24 {
		return 0, errNotDuration
	}
	d := hours * 24
	if rest == "" {
		return d, nil
	}
	more, err := goDuration(rest)
	if err != nil || more < 0 || more > math.MaxInt64-d || strings.HasPrefix(rest, "+") {
		return 0, errNotDuration
	}
	return d + more, nil
}

func goDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		// Its text repeats the value, which the caller may not show.
		return 0, errNotDuration
	}
	return d, nil
}

// ParseDuration reads a duration as settings and manifest have them: 500ms, 30s, 10m, 15d.
func ParseDuration(text string) (time.Duration, error) { return parseDuration(text) }
