package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lathe-run/lathe/internal/statestore"
)

// retentionMargin is the part of delete.retention.ms that local state may not come near; clocks may differ by as much.
const retentionMargin = 10

// fromLocal is how a restore went on that used what was there.
const fromLocal = "resumed from local state"

func readFromStart(why string) string { return "read from the start because " + why }

// resumePoint returns the local position if it is certainly valid, and otherwise wipes the partition.
func (p *partition) resumePoint(ctx context.Context, c committed, ends offsetRange) (pos statestore.Position, how string, err error) {
	pos, found, err := p.w.deps.Store.Position(p.id)
	if err != nil && !errors.Is(err, statestore.ErrFormat) {
		return pos, "", err
	}
	why := "there is no local state"
	switch {
	case err != nil:
		why = "the local position is in a format that this release does not know"
	case found:
		if why, err = p.stale(ctx, pos, c, ends); err != nil {
			return pos, "", err
		}
	}
	if why == "" {
		p.warnTruncated(ctx, c, ends)
		pos.ChangelogNext = max(pos.ChangelogNext, ends.From)
		return pos, fromLocal, nil
	}
	if err := p.whole(c, ends); err != nil {
		return pos, "", err
	}
	pos, err = p.wiped(ends.From)
	return pos, readFromStart(why), err
}

func (p *partition) wiped(start int64) (statestore.Position, error) {
	pos := statestore.Position{ChangelogID: p.w.cfg.Changelog.ID, ChangelogNext: start, LeaderEpoch: -1}
	if err := p.w.deps.Store.Wipe(p.id); err != nil {
		return pos, fmt.Errorf("drop local state: %w", err)
	}
	return pos, nil
}

// stale says why the local state cannot be trusted to be a beginning of the changelog; nothing when it can.
func (p *partition) stale(ctx context.Context, pos statestore.Position, c committed, ends offsetRange) (string, error) {
	if why := p.misplaced(pos, c, ends); why != "" {
		return why, nil
	}
	recorded, found, err := p.recorded()
	if err != nil {
		return "the local input position cannot be read", nil //nolint:nilerr // The changelog has it.
	}
	if found && c.offset >= 0 && recorded.TopicID == p.w.cfg.Turns.ID && recorded.Next > c.offset {
		return "the local state is ahead of the group", nil
	}
	if pos.ChangelogNext == ends.From {
		return "", nil
	}
	end, err := retried(ctx, p.w, func() (int64, error) { return p.w.changelog.epochEnd(ctx, p.id, pos.LeaderEpoch) })
	if err != nil {
		return "", err
	}
	if end < pos.ChangelogNext {
		return "the changelog was cut below the local state", nil
	}
	return "", nil
}

// misplaced says why a position cannot be one of the changelog as it is now, or why it cannot be told.
func (p *partition) misplaced(pos statestore.Position, c committed, ends offsetRange) string {
	retention := p.w.cfg.ChangelogDeleteRetention
	margin := retention / retentionMargin
	age := p.w.deps.Now().Sub(pos.At).Round(time.Second)
	switch {
	case pos.ChangelogID != p.w.cfg.Changelog.ID:
		return "the local state is of another changelog topic"
	case pos.ChangelogNext < ends.From && !hasAll(c, pos.ChangelogNext):
		return "the changelog begins after the local state ends"
	case pos.ChangelogNext > ends.To:
		return "the local state is ahead of the changelog"
	case age > retention-margin:
		return "the local state is older than tombstones are kept"
	case age < -margin:
		return "the local state is from the future, so that its age is not known"
	case pos.ChangelogNext > ends.From && pos.LeaderEpoch < 0:
		return "the leader epoch of the local state is not known"
	}
	return ""
}

// recorded reads the input position from the state.
func (p *partition) recorded() (inputPosition, bool, error) {
	value, found, err := p.w.deps.Store.Attach(p.id, func(bool) {}).Get(positionKey)
	if err != nil || !found {
		return inputPosition{}, false, err
	}
	pos, err := decodePosition(value)
	return pos, err == nil, err
}

// changelogEpoch is the newest leader epoch of a changelog partition that anybody here has heard of. It stands beside the local
// position, and may not be older than the records before that: then a restart could not tell them from records that were cut off.
func (w *Worker) changelogEpoch(id int32) int32 {
	return max(w.changelog.epoch(id), w.ring.LeaderEpoch(w.cfg.Changelog.Name, id))
}
