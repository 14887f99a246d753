package txn

import (
	"errors"
	"slices"
	"testing"
)

// refusesReplacedLog makes the changelog anew between two cycles. A producer that has never written to it knows no other topic of
// that name and writes to the new one: the cycle was committed, and whoever restored later took what the new topic has for all
// there ever was.
func refusesReplacedLog(b *bed) {
	w := b.worker()
	requireOutcome(b.t, w.commit("a", 0, 2), Committed, nil)
	_, err := b.admin.DeleteTopic(b.t.Context(), b.changelog)
	must(b.t, err)
	b.createTopic(b.changelog, bedPartitions, 1)
	before := b.committed()
	for len(w.partitions) > 0 { // whichever slot it is, and however often it is tried
		res := w.commit("b", 0, 1, 2)
		equal(b.t, res.Outcome, Aborted)
		cut, ok := errors.AsType[*LogCutError](res.Err)
		if !ok {
			b.t.Logf("refused: %v", res.Err) // by a producer that knows the old topic
			continue
		}
		slices.Sort(cut.Partitions)
		equal(b.t, cut.Partitions, []int32{0, 2})
		break
	}
	equal(b.t, b.committed(), before)
	equal(b.t, b.visible(b.output), map[string]int{"a/0": 1, "a/2": 1})
	equal(b.t, len(b.visible(b.changelog)), 0)
}

func TestLogCutError_SaysWhere(t *testing.T) {
	t.Parallel()
	err := &LogCutError{Partitions: []int32{3, 1}, Offset: 0, Next: 9}
	equal(t, errors.Is(err, ErrLogCut), true)
	equal(t, err.Error(), "the changelog ends before what was written to it: partitions [3 1]: offset 0 comes after 9")
}
