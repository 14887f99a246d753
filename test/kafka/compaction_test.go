//go:build kafka

package kafka_test

import (
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// TestCompaction_NeverMovesTheStartOfTheLog: a changelog that begins above 0 was cut by somebody.
func TestCompaction_NeverMovesTheStartOfTheLog(t *testing.T) {
	t.Parallel()
	c := kafkatest.Private(t, kafkatest.Config{Properties: map[string]string{"log.cleaner.backoff.ms": "200"}})
	topic := c.Topic(t, 1, map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0",
		"delete.retention.ms": "0",
	})
	f := newFixture(t, c, 1)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	value, n := make([]byte, 100<<10), 0
	first := func() int64 {
		t.Helper()
		reader := c.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		defer reader.Close()
		fetches := reader.PollFetches(f.ctx)
		f.must(fetches.Err())
		return fetches.Records()[0].Offset
	}
	f.eventually("compaction takes the first records away", func() bool {
		for range 20 { // few keys, so that whole segments hold nothing that lasts
			n++
			f.must(cl.ProduceSync(f.ctx, &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(n % 3)), Value: value}).FirstErr())
		}
		return first() > 0
	})
	starts, err := kadm.NewClient(cl).ListStartOffsets(f.ctx, topic)
	f.must(err)
	if o, _ := starts.Lookup(topic, 0); o.Offset != 0 {
		t.Errorf("the log begins at %d, want 0; its first record is at %d", o.Offset, first())
	}
}
