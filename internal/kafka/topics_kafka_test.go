//go:build kafka

package kafka

import (
	"os"
	"testing"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

func TestTopics_OnKafka(t *testing.T) {
	t.Parallel()
	topicSuite(t, func(tb testing.TB, brokers int) topicCluster {
		tb.Helper()
		return topicCluster{addrs: kafkatest.Shared(tb, brokers).Addrs(), names: kafkatest.Name}
	})
}

func TestCheckBrokers_SeesTransactionVersionOneOnKafka(t *testing.T) {
	t.Parallel()
	c := kafkatest.Private(t, kafkatest.Config{TransactionVersion: 1})
	caps, err := CheckBrokers(t.Context(), testClient(t, testConfig(t, c.Addrs()...)), 0)
	if err != nil {
		t.Fatal(err)
	}
	if caps.TransactionVersion != 1 {
		t.Errorf("transaction.version = %d, want 1", caps.TransactionVersion)
	}
	if caps.MaxOffsetMetadata != 4096 {
		t.Errorf("offset.metadata.max.bytes = %d, want 4096", caps.MaxOffsetMetadata)
	}
}
