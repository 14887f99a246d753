package llm

import (
	"hash/fnv"
	"strings"
	"sync"
)

// corpusBytes is so much that two fillers within the 64 KB that LZ4 looks back seldom share a passage.
const corpusBytes = 2 << 20

// Filler is n bytes of words, the same ones for the same key and others for another. A benchmark whose turns all said the same
// would compress to nothing, on the wire and on the broker's disk, and so measure neither.
func Filler(key string, n int) string {
	if n <= 0 {
		return ""
	}
	text := corpus()
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // A hash takes everything.
	at := int(h.Sum64() % corpusBytes)
	if n <= corpusBytes-at {
		return text[at : at+n]
	}
	rest := n - (corpusBytes - at) // It goes on at the front.
	return text[at:] + strings.Repeat(text, 1+rest/corpusBytes)[:rest]
}

var corpus = sync.OnceValue(func() string { //nolint:gochecknoglobals // It never changes.
	words := strings.Fields("order status customer refund answer question please payment delivery ticket number account detail " +
		"before after while under without reason")
	var b strings.Builder
	b.Grow(corpusBytes + 16)
	for seed := uint32(2463534242); b.Len() < corpusBytes; {
		// Xorshift: no need for a better one, but for the same one everywhere.
		seed ^= seed << 13
		seed ^= seed >> 17
		seed ^= seed << 5
		b.WriteString(words[int(seed%uint32(len(words)))])
		b.WriteByte(' ')
	}
	return b.String()[:corpusBytes]
})
