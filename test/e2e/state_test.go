package e2e_test

import (
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/lathe-run/lathe/internal/consumer/txn"
)

// deadLetter is a record that must be refused.
type deadLetter struct {
	partition int32
	offset    int64
	// may are the reasons it may be refused for.
	may []string
	// what it is, for messages.
	what string
	// value is what was sent; it comes back whole unless it is too large.
	value []byte
}

// wantCycle expects that the cycle of a number is committed by now.
func (b *bed) wantCycle(cid uint64) {
	b.Helper()
	var last uint64
	b.committed().Each(func(o kadm.OffsetResponse) {
		if m, ok := txn.ParseMetadata(o.Metadata); ok {
			last = max(last, m.CID)
		}
	})
	if last < cid {
		b.Errorf("the last committed cycle is %d, want at least %d", last, cid)
	}
}
