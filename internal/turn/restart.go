package turn

import (
	"context"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// mostStarts is how often a turn is started without progress before it counts as what its workers died of.
const mostStarts = 3

// Suspect holds back turns that their worker may have died of.
type Suspect interface {
	// MayStart returns when the turn may start, or what stops it first. The last start is the one after which the turn gets none.
	MayStart(ctx context.Context, last bool) error
}

// restart counts the start of a suspect turn. The count is durable when it returns, since the turn may take the process with it.
// The verdict is that of a turn which has had its starts.
//
// A worker that dies of one turn has others in flight, and they are counted with it. So MayStart lets a turn have its last start
// only when no other suspect is about to show whether it kills: the one that the worker then dies of is the only one with no start
// left.
func (r *run) restart(ctx context.Context) (*verdict, error) {
	if r.turn.Suspect == nil {
		return nil, nil //nolint:nilnil // The turn just goes on.
	}
	start := r.known.starts + 1
	if start > mostStarts {
		v := failed(schemas.CodeCrashLoop, "the turn was started %d times, and each time its worker was gone before anything more of it was recorded", mostStarts)
		v.output = r.partial()
		return v, nil
	}
	if err := r.turn.Suspect.MayStart(ctx, start == mostStarts); err != nil {
		return nil, err
	}
	return nil, r.turn.Journal.Commit(ctx, &fact.Restarted{Start: start, At: r.now(), Worker: r.loop.cfg.Worker})
}
