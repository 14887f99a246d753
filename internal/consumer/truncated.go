package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lathe-run/lathe/internal/consumer/txn"
)

// errTruncated says that the changelog does not have what was written to it. Its text is for who has to decide.
var errTruncated = errors.New("the changelog was truncated or replaced, and state of the partition went with it. To go on with all of it, " +
	"start the worker that still has the partition in its LATHE_DATA_DIR; to accept the loss, stop all workers and set the " +
	"partition's committed offset anew (kafka-consumer-groups --reset-offsets --to-current)")

// reached checks that the changelog has all that the group's metadata says was written.
func reached(c committed, next int64) error {
	if m, ours := txn.ParseMetadata(c.metadata); ours && next < m.ChangelogNext {
		return fmt.Errorf("%w: it ends at %d, it was written up to %d", errTruncated, next, m.ChangelogNext)
	}
	return nil
}

// hasAll reports whether local state has all that was ever committed, so that nothing of the changelog is needed any more.
func hasAll(c committed, next int64) bool {
	m, ours := txn.ParseMetadata(c.metadata)
	return ours && next >= m.ChangelogNext
}

// whole checks that the changelog gives all of the state when it is read from its start on, before local state is dropped for
// it. The start of a topic that is only compacted never moves by itself: where it has, records were deleted, and no reader could
// see it from what is left.
func (p *partition) whole(c committed, log offsetRange) error {
	if err := reached(c, log.To); err != nil {
		return err
	}
	if m, ours := txn.ParseMetadata(c.metadata); ours && p.isCut(m, log) {
		return fmt.Errorf("%w: it begins at %d, it began at %d", errTruncated, log.From, m.ChangelogFrom)
	}
	return nil
}

func (p *partition) isCut(m txn.Metadata, log offsetRange) bool {
	return log.From > m.ChangelogFrom && !p.w.deps.Hooks.LogStartMoves
}

// wholeFrom is where the next commits say that the state begins: as it was said before, or if nothing was, since the group is
// new or a person has set its offset, where the log begins now.
func wholeFrom(c committed, begins int64) int64 {
	if m, ours := txn.ParseMetadata(c.metadata); ours {
		return m.ChangelogFrom
	}
	return begins
}

// warnTruncated says that local state is all that is left: another worker would halt the partition.
func (p *partition) warnTruncated(ctx context.Context, c committed, log offsetRange) {
	if m, ours := txn.ParseMetadata(c.metadata); ours && p.isCut(m, log) {
		p.w.log.ErrorContext(ctx, "changelog was truncated; only this worker has all of the partition's state", p.attr(),
			slog.Int64("begins", log.From), slog.Int64("began", m.ChangelogFrom))
	}
}
