package dedupe

import (
	"sync"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/statestore"
)

// lateFrame is the frame of a fact that is encoded only if a cycle takes the turn before its end: most turns that only read begin and
// end between two cycles, and nothing is left of their journals. What the fact is made of must not change.
type lateFrame struct {
	facts *fact.Codec
	seq   int64
	fact  fact.Fact
	most  int

	once  sync.Once
	bytes []byte
}

func (l *lateFrame) Size() int { return l.most }

func (l *lateFrame) Bytes() []byte {
	l.once.Do(func() {
		l.bytes, _ = l.facts.Frame(fact.Frame{Seq: l.seq, Fact: l.fact}, l.room) // Of which the size is known can be encoded.
	})
	return l.bytes
}

func (*lateFrame) room(n int) []byte { return make([]byte, 0, n) }

// smallLate is up to how many bytes frames share memory. Each keeps all of those alive, with the facts they are made of.
const smallLate = 2 << 10

// late returns the frame of a fact to be encoded when it is needed; nil if that is now: a cycle is to take it at once since somebody
// waits, the session's history takes it, or its size is not known or near the limit.
func (j *Journal) late(e *statestore.Effect, f fact.Fact, seq int64) *lateFrame {
	if e.Urgent || j.keeps(f) {
		return nil
	}
	most := fact.MostBytes(f)
	if most == 0 || most+stampSize > j.store.codec.cfg.RecordBytes {
		return nil
	}
	var l *lateFrame
	if most <= smallLate {
		l = &j.mu.memory.late.take(1)[:1][0]
	} else {
		l = &lateFrame{}
	}
	l.facts, l.seq, l.fact, l.most = j.store.codec.facts, seq, f, most
	return l
}
