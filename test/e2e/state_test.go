package e2e_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

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

// checkDeadLetters: exactly the bad records, each with its reason, its place and its bytes.
func (r *reader) checkDeadLetters() {
	r.Helper()
	want := make(map[string]deadLetter)
	for _, d := range r.dead {
		want[fmt.Sprintf("%d:%d", d.partition, d.offset)] = d
	}
	for _, rec := range r.letters {
		place := header(rec, "lathe_partition") + ":" + header(rec, "lathe_offset")
		reason := header(rec, "lathe_reason")
		d, ok := want[place]
		if !ok {
			r.fault("dead letter of %s (%s: %s) was not expected, or came twice", place, reason, header(rec, "lathe_detail"))
			continue
		}
		delete(want, place)
		if !slices.Contains(d.may, reason) {
			r.fault("%s: dead letter for %s (%s), want %v", d.what, reason, header(rec, "lathe_detail"), d.may)
		}
		if header(rec, "lathe_topic") != r.topic("turns") || header(rec, "lathe_detail") == "" || header(rec, "lathe_at") == "" {
			r.fault("%s: the dead letter has the headers %v", d.what, rec.Headers)
		}
		whole := header(rec, "lathe_cut") == ""
		switch {
		case whole && !bytes.Equal(rec.Value, d.value):
			r.fault("%s: the dead letter holds %d bytes that are not the record's", d.what, len(rec.Value))
		case !whole && (!bytes.HasPrefix(d.value, rec.Value) || header(rec, "lathe_value_bytes") != strconv.Itoa(len(d.value))):
			r.fault("%s: the dead letter holds %d of %d bytes, says %s", d.what, len(rec.Value), len(d.value), header(rec, "lathe_value_bytes"))
		}
	}
	for place, d := range want {
		r.fault("%s at %s: no dead letter", d.what, place)
	}
}

// checkOffsets: all that was sent is done, and the last worker said that it left nothing in flight.
func (r *reader) checkOffsets() {
	r.Helper()
	ends, err := r.adm.ListEndOffsets(r.ctx, r.topic("turns"))
	r.must(err)
	committed := r.committed()
	ends.Each(func(o kadm.ListedOffset) {
		c, ok := committed.Lookup(o.Topic, o.Partition)
		if !ok {
			if o.Offset > 0 {
				r.fault("partition %d has %d records and no committed offset", o.Partition, o.Offset)
			}
			return
		}
		if c.At != o.Offset {
			r.fault("partition %d: committed offset %d, want %d", o.Partition, c.At, o.Offset)
		}
		m, ok := txn.ParseMetadata(c.Metadata)
		if !ok || !m.Clean {
			r.fault("partition %d: the metadata of the committed offset is %q, want one that says clean", o.Partition, c.Metadata)
		}
	})
}

// checkState: folded, the changelog has a record of each ended turn and no journal.
func (r *reader) checkState() {
	r.Helper()
	state := make(map[string]bool)
	for _, rec := range r.state {
		state[string(rec.Key)] = rec.Value != nil
	}
	for key, lives := range state {
		if lives && key[0] == 'j' {
			r.fault("the changelog still has the journal record %q", key)
		}
	}
	for _, s := range r.sent {
		if !state["t"+s.id] {
			r.fault("the changelog has no record of turn %s", s.id)
		}
	}
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
