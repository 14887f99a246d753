package e2e_test

import "github.com/lathe-run/lathe/test/internal/world"

// ledger reads what the tools did, in order.
func (b *bed) ledger() []world.Entry {
	b.Helper()
	out, err := world.ReadLedger(b.dir)
	b.must(err)
	return out
}

// begun counts how often each call began, by idempotency key.
func (b *bed) begun() map[string]int {
	b.Helper()
	return world.Begun(b.ledger())
}

// awaitBegun waits until a call has begun.
func (b *bed) awaitBegun(key string) {
	b.Helper()
	b.eventually("the call "+key+" begins", func() bool { return b.begun()[key] > 0 })
}
