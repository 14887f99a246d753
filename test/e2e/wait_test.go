package e2e_test

import "time"

// eventually returns when the condition holds.
func (b *bed) eventually(what string, holds func() bool) {
	b.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			b.Fatalf("not in %s: %s", patience, what)
		}
	}
}
