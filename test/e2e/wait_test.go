package e2e_test

import (
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

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

// awaitCommitted waits until the group has done all that was sent.
func (b *bed) awaitCommitted() {
	b.Helper()
	b.eventually("the group has committed all that was sent", func() bool {
		ends, err := b.adm.ListEndOffsets(b.ctx, b.topic("turns"))
		if err != nil || ends.Error() != nil {
			return false
		}
		committed, done := b.committed(), true
		ends.Each(func(o kadm.ListedOffset) {
			c, ok := committed.Lookup(o.Topic, o.Partition)
			done = done && (o.Offset == 0 || ok && c.At == o.Offset)
		})
		return done
	})
}

// committed are the committed offsets of the group, those of transactions that are just being ended included.
func (b *bed) committed() (stable kadm.OffsetResponses) {
	b.Helper()
	b.eventually("the committed offsets are stable", func() bool {
		var err error
		stable, err = b.adm.FetchOffsets(kadm.RequireStable(b.ctx), b.app)
		return err == nil && stable.Ok()
	})
	return stable
}
