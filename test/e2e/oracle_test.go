package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/test/internal/oracle"
)

// check asks the oracle. It is called when every turn has ended and every worker has drained, reads all that was committed, and
// checks every promise on it.
func (r *reader) check() {
	r.Helper()
	r.toEnd()
	e := r.evidence()
	for _, v := range e.Check() {
		r.fault("%s", v)
	}
}

// fault is something that should not be.
func (r *reader) fault(format string, args ...any) {
	r.Helper()
	if r.faults == nil {
		r.Errorf(format, args...)
		return
	}
	*r.faults = append(*r.faults, fmt.Sprintf(format, args...))
}

// evidence is what the oracle judges by.
func (r *reader) evidence() *oracle.Evidence {
	r.Helper()
	e := &oracle.Evidence{
		Topic: r.topic("turns"), Letters: r.letters, Changelog: r.state, Ledger: r.ledger(),
		Committed: make(map[int32]oracle.Offset), Ends: make(map[int32]int64),
	}
	for _, s := range r.sent {
		e.Sent = append(e.Sent, oracle.Turn{ID: s.id, Session: s.session, May: s.may})
	}
	for _, d := range r.dead {
		e.Bad = append(e.Bad, oracle.DeadLetter{Partition: d.partition, Offset: d.offset, May: d.may, What: d.what, Value: d.value})
	}
	for _, o := range r.outputs {
		e.Outputs = append(e.Outputs, oracle.Output{OutputRecord: o.OutputRecord, Env: o.env, Rec: o.rec})
	}
	ends, err := r.adm.ListEndOffsets(r.ctx, r.topic("turns"))
	r.must(err)
	ends.Each(func(o kadm.ListedOffset) { e.Ends[o.Partition] = o.Offset })
	r.committed().Each(func(o kadm.OffsetResponse) {
		m, ok := txn.ParseMetadata(o.Metadata)
		e.Committed[o.Partition] = oracle.Offset{At: o.At, Clean: ok && m.Clean, Metadata: o.Metadata}
	})
	dirs, err := filepath.Glob(filepath.Join(r.dir, "data-*"))
	r.must(err)
	for _, dir := range dirs {
		if strings.Contains(dir, ".damaged-") {
			continue
		}
		local, err := oracle.ReadLocal(filepath.Base(dir), dir, turnPartitions)
		r.must(err)
		e.Local = append(e.Local, local...)
	}
	return e
}
