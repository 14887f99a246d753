//go:build kafka

package e2e_test

import (
	"fmt"
	"strconv"
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
	// A broker lets a client spend what it saved up; how many turns that takes depends on how well their cycles compress.
	const enough = 2 * time.Second
	patience, round := time.Now().Add(time.Minute), 0
	for ; w.throttled() < enough; round++ {
		if time.Now().After(patience) {
			t.Fatalf("brokers made the worker wait %s in a minute and %d rounds, want %s", w.throttled(), round, enough)
		}
		for p := range int32(turnPartitions) {
			b.send(fmt.Sprintf("write-%d-%d", round, p), keyFor(p))
			b.send(fmt.Sprintf("read-%d-%d", round, p), keyFor(p))
		}
		r.allEnded()
	}
	t.Logf("%d rounds until brokers had made the worker wait %s", round, w.throttled())
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

// throttled is how long brokers have made the worker wait.
func (p *process) throttled() time.Duration {
	p.Helper()
	_, metrics := p.probe("/metrics")
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "lathe_kafka_throttle_seconds_total "); ok {
			seconds, err := strconv.ParseFloat(value, 64)
			p.must(err)
			return time.Duration(seconds * float64(time.Second))
		}
	}
	return 0
}
