package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/schemas"
)

// letterFilter says which dead letters are wanted. Its zero value wants all.
type letterFilter struct {
	reasons       []string
	session, turn string
	since, until  string
	partitions    []int32
	limit         int

	// from and to are since and until once they are read; zero for none.
	from, to time.Time
}

func (f *letterFilter) flags(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.reasons, "reason", nil, "only these reasons, separated by commas")
	fl.StringVar(&f.session, "session", "", "only this session, or key")
	fl.StringVar(&f.turn, "turn", "", "only this turn, where the record can be decoded")
	fl.StringVar(&f.since, "since", "", "only from this time on: 2h, 3d, 2026-03-04, or 2026-03-04T05:06:07Z")
	fl.StringVar(&f.until, "until", "", "only before this time")
	fl.Int32SliceVar(&f.partitions, "partition", nil, "only these partitions of the dead-letter topic")
	fl.IntVar(&f.limit, "limit", 0, "at most this many; 0 for no limit")
}

// resolve reads what the flags say.
func (f *letterFilter) resolve(now time.Time) (err error) {
	for _, r := range f.reasons {
		if !schemas.Code(r).DeadLetter() {
			return refusedError{fmt.Errorf("--reason %s: there is no such reason, see `worker help dlq show`", r)}
		}
	}
	if f.limit < 0 {
		return refusedError{errors.New("--limit cannot be below 0")}
	}
	if f.from, err = parseWhen(f.since, now); err != nil {
		return refusedError{fmt.Errorf("--since %s: %w", f.since, err)}
	}
	if f.to, err = parseWhen(f.until, now); err != nil {
		return refusedError{fmt.Errorf("--until %s: %w", f.until, err)}
	}
	return nil
}

// parseWhen reads a time, or how long ago it was. Times without a zone are in UTC, as they are printed.
func parseWhen(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	d, err := app.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, errors.New("is neither a time such as 2026-03-04T05:06:07Z nor how long ago, such as 90m or 3d")
	}
	return now.Add(-d), nil
}

// wants reports whether a letter is wanted, whatever the limit.
func (f *letterFilter) wants(l *letter) bool {
	switch {
	case len(f.partitions) > 0 && !slices.Contains(f.partitions, l.rec.Partition),
		len(f.reasons) > 0 && !slices.Contains(f.reasons, l.reason()),
		f.session != "" && f.session != l.session() && f.session != string(l.rec.Key),
		f.turn != "" && f.turn != l.turn(),
		!f.from.IsZero() && l.rec.Timestamp.Before(f.from),
		!f.to.IsZero() && !l.rec.Timestamp.Before(f.to):
		return false
	}
	return true
}

// narrow leaves the spans that can hold something wanted.
func (f *letterFilter) narrow(spans []span) []span {
	if len(f.partitions) == 0 {
		return spans
	}
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return !slices.Contains(f.partitions, s.partition) })
}

// isSet reports whether anything narrows the choice.
func (f *letterFilter) isSet() bool {
	return len(f.reasons)+len(f.partitions)+f.limit > 0 || strings.Join([]string{f.session, f.turn, f.since, f.until}, "") != ""
}
