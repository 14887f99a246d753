//go:build kafka

package kafka_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// lifeline is the network of one client, which can die as with its process: without a word to the brokers.
type lifeline struct {
	mu struct {
		sync.Mutex
		conns []net.Conn
		dead  bool
	}
}

func (l *lifeline) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.dead {
		conn.Close()
		return nil, net.ErrClosed
	}
	l.mu.conns = append(l.mu.conns, conn)
	return conn, nil
}

func (l *lifeline) kill(tb testing.TB) {
	tb.Helper()
	tb.Cleanup(func() { // the client says goodbye when it is closed, and would try that for long
		l.mu.Lock()
		defer l.mu.Unlock()
		l.mu.dead = false
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.dead = true
	for _, conn := range l.mu.conns {
		conn.Close()
	}
}

func TestRestart_AKilledStaticMemberOfAClassicGroupHasItsPartitionsBackAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 4)
	proto := protocols()[0]
	const session = 45 * time.Second // far beyond what the restart may take
	life := &lifeline{}
	old := f.join(proto, kgo.InstanceID("pod-0"), kgo.SessionTimeout(session), kgo.Dialer(life.dial))
	old.awaitOwned(4)
	life.kill(t)

	begun := time.Now()
	fresh := f.join(proto, kgo.InstanceID("pod-0"), kgo.SessionTimeout(session))
	fresh.awaitOwned(4)
	if took := time.Since(begun); took > session/4 {
		t.Errorf("the partitions are back after %s", took)
	}
	// The old process, should it come back, is fenced.
	stale := old.metadata()
	instance := "pod-0"
	stale.instance = &instance
	f.want("a commit of the old process", f.answer(stale, 0)[0], kerr.FencedInstanceID)
}

// groupErrors notes whether a group session ended with one error.
type groupErrors struct {
	target error
	seen   atomic.Bool
}

// OnGroupManageError is called by the client.
func (g *groupErrors) OnGroupManageError(err error) {
	if errors.Is(err, g.target) {
		g.seen.Store(true)
	}
}

func TestRestart_AKilledStaticMemberOfAConsumerGroupWaitsForItsOldSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, kafkatest.Shared(t, 1), 4)
	proto := protocols()[1]
	f.shortenSession(6 * time.Second)
	life := &lifeline{}
	old := f.join(proto, kgo.InstanceID("pod-0"), kgo.Dialer(life.dial))
	old.awaitOwned(4)
	life.kill(t)

	unreleased := &groupErrors{target: kerr.UnreleasedInstanceID}
	begun := time.Now()
	fresh := f.join(proto, kgo.InstanceID("pod-0"), kgo.WithHooks(unreleased))
	fresh.awaitOwned(4)
	if !unreleased.seen.Load() {
		t.Errorf("the id was free at once (%s), want UNRELEASED_INSTANCE_ID first", time.Since(begun))
	}
}

// shortenSession sets the session timeout of the fixture's group, which the consumer protocol keeps at the broker. A broker
// that does not allow it keeps its own, and the test takes longer.
func (f *fixture) shortenSession(session time.Duration) {
	f.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, f.group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "consumer.session.timeout.ms", new(strconv.FormatInt(session.Milliseconds(), 10))
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(f.ctx, f.cluster.Client(f))
	f.must(err)
	if err := kerr.ErrorForCode(resp.Resources[0].ErrorCode); err != nil {
		f.Logf("the session timeout stays the broker's: %v", err)
	}
}
