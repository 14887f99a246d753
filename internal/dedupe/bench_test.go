package dedupe

import (
	"fmt"
	"testing"

	"github.com/lathe-run/lathe/schemas"
)

// BenchmarkTurn is what the journal of a turn of four responses and three reading calls costs, with the commit of cycles of 64
// turns: 12 events and two changelog records each.
func BenchmarkTurn(b *testing.B) {
	bed := newBed(b)
	support := agent(true)
	n := 0
	turn := func() {
		n++
		in := askIn(fmt.Sprintf("s%d", n), fmt.Sprintf("t%d", n), "hi", int64(n))
		in.Agent = support
		j := bed.accept(in)
		for step := range 3 {
			c := call(lookup(), step, 0, `{"n":1}`)
			bed.add(j, responded(step, `{"n":1}`))
			bed.add(j, began(c))
			bed.add(j, finished(c, `{"ok":true}`))
		}
		bed.add(j, responded(3))
		bed.add(j, ended(schemas.StatusCompleted))
		j.Close()
	}
	b.ReportAllocs()
	for b.Loop() {
		for range 64 {
			turn()
		}
		bed.commit()
		bed.outputs, bed.records = nil, nil
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(64*b.N), "µs/turn")
}
