package llm

import (
	"strings"
	"testing"
)

// A filler that passes the end of the words goes on at their front, so that a longer one always begins with a shorter one.
func TestFiller_GoesOnAtTheFront(t *testing.T) {
	t.Parallel()
	const key = "t1#0"
	long := Filler(key, 3*corpusBytes)
	at := strings.Index(corpus(), Filler(key, 200))
	if want := strings.Repeat(corpus(), 4)[at:][:3*corpusBytes]; long != want {
		t.Error("three times the words are not the words, three times")
	}
	for _, n := range []int{0, 1, corpusBytes - at, corpusBytes - at + 1, corpusBytes, 2*corpusBytes - at, 2*corpusBytes - at + 1} {
		if got := Filler(key, n); got != long[:n] {
			t.Errorf("%d bytes begin otherwise", n)
		}
	}
}
