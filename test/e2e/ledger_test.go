package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// entry is one line of the ledger.
type entry struct {
	at   time.Time
	pid  int
	what string
	tool string
	key  string
}

// ledger reads what the tools did, in order.
func (b *bed) ledger() []entry {
	b.Helper()
	raw, err := os.ReadFile(filepath.Join(b.dir, "ledger"))
	if os.IsNotExist(err) {
		return nil
	}
	b.must(err)
	var out []entry
	for line := range strings.Lines(string(raw)) {
		var e entry
		var nanos int64
		if _, err := fmt.Sscanf(line, "%d %d %s %s %s\n", &nanos, &e.pid, &e.what, &e.tool, &e.key); err != nil {
			b.Fatalf("read the ledger's line %q: %v", line, err)
		}
		e.at = time.Unix(0, nanos)
		out = append(out, e)
	}
	return out
}

// begun counts how often each call began, by idempotency key.
func (b *bed) begun() map[string]int {
	b.Helper()
	out := make(map[string]int)
	for _, e := range b.ledger() {
		if e.what == "begin" {
			out[e.key]++
		}
	}
	return out
}

// awaitBegun waits until a call has begun.
func (b *bed) awaitBegun(key string) {
	b.Helper()
	b.eventually("the call "+key+" begins", func() bool { return b.begun()[key] > 0 })
}
