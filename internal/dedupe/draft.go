package dedupe

import (
	"sync"

	"github.com/lathe-run/lathe/schemas"
)

// toolDraft is a tool event while it is written, with the numbers that its fields point to. Of an event only what was written is
// kept, and a turn has a dozen: drafts are used again.
type toolDraft struct {
	schemas.ToolEvent

	seq, size, ms            int64
	step, position, attempts int32
	cached, started          bool
}

// turnDraft is the same for a turn event.
type turnDraft struct {
	schemas.TurnOutput

	seq, ms                     int64
	step, steps, calls, workers int32
	asked                       []schemas.AskedCall
	offered                     []schemas.OfferedTool
}

// drafts are those that nobody uses right now.
type drafts struct{ tool, turn sync.Pool }

func (p *drafts) toolDraft() *toolDraft {
	if d, ok := p.tool.Get().(*toolDraft); ok {
		return d
	}
	return &toolDraft{}
}

func (p *drafts) turnDraft() *turnDraft {
	if d, ok := p.turn.Get().(*turnDraft); ok {
		return d
	}
	return &turnDraft{}
}

// doneTool takes a draft back, empty: what it points to must not be kept alive.
func (p *drafts) doneTool(d *toolDraft) {
	*d = toolDraft{}
	p.tool.Put(d)
}

// doneTurn is the same for a turn event. Its lists keep their room.
func (p *drafts) doneTurn(d *turnDraft) {
	clear(d.asked)
	clear(d.offered)
	*d = turnDraft{asked: d.asked[:0], offered: d.offered[:0]}
	p.turn.Put(d)
}
