//go:build kafka

package e2e_test

import (
	"testing"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

func runTests(m *testing.M) int { return kafkatest.Main(m) }

// newCluster returns the brokers that the tests with the tag kafka run on.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{addrs: kafkatest.Shared(t, 1).Addrs(), real: true}
}

// threeBrokers returns a real cluster of three.
func threeBrokers(t *testing.T) *cluster {
	t.Helper()
	return &cluster{addrs: kafkatest.Shared(t, 3).Addrs(), real: true}
}
