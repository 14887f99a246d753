//go:build kafka

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestQuota_SlowsTheWorkerAndFailsNothing gives the worker's producers a quota that it exceeds many times over: brokers hold their
// answers back and tell the client to wait, cycles take longer and hold more, and none is aborted.
func TestQuota_SlowsTheWorkerAndFailsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, newCluster(t))
	b.createTurns()
	const bytesPerSecond = 3_000 // Over ten seconds; until then a client may send them at once.
	for slot := range 3 {
		client, key := fmt.Sprintf("%s-w-0-txn-%d", b.app, slot), "client-id"
		done, err := b.adm.AlterClientQuotas(b.ctx, []kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: key, Name: &client}},
			Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: bytesPerSecond}},
		}})
		b.must(err)
		b.must(done[0].Err)
	}
	w, r := b.start("w-0").ready(), b.reader()
	began := time.Now()
	for round := range int32(36) {
		for p := range int32(turnPartitions) {
			b.send(fmt.Sprintf("write-%d-%d", round, p), keyFor(p))
			b.send(fmt.Sprintf("read-%d-%d", round, p), keyFor(p))
		}
		r.allEnded()
	}
	took := time.Since(began)
	t.Logf("took %s", took)
	if took < 5*time.Second {
		t.Errorf("it took %s, as if there were no quota", took)
	}
	b.awaitCommitted()
	_, metrics := w.probe("/metrics")
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "lathe_commit_duration_seconds_count") && strings.Contains(line, `outcome="aborted"`) {
			t.Errorf("cycles were aborted: %s", line)
		}
	}
	if !strings.Contains(metrics, `outcome="committed"`) {
		t.Error("the worker counts no cycles")
	}
	w.drain()
	r.check()
}
