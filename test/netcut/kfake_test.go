package netcut

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTrigger_KnowsTheRequestsOfARealClient commits a transaction while EndTxn is lost on its way there or back. The client
// asks again, so the broker sees it once more than is lost.
func TestTrigger_KnowsTheRequestsOfARealClient(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		when When
		seen int32
	}{
		{"lost before the broker", Before, 1},
		{"lost while the broker handles it", Sent, 2},
		{"lost with the answer", Answered, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
			if err != nil {
				t.Fatal(err)
			}
			defer broker.Close()
			var seen atomic.Int32
			broker.ControlKey(EndTxn, func(kmsg.Request) (kmsg.Response, error, bool) {
				broker.KeepControl()
				seen.Add(1)
				return nil, nil, false //nolint:nilnil // not handled: kfake answers
			})
			n, err := Open(1)
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			if err := n.Forward(t.Context(), broker.ListenAddrs()); err != nil {
				t.Fatal(err)
			}
			cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addrs()...), kgo.TransactionalID("t"),
				// kfake advertises itself, so every way is led through the proxy here.
				kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "tcp4", n.Addrs()[0])
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			a := n.Arm(Trigger{Key: EndTxn, When: tc.when})
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "events", Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			t.Logf("the transaction ends with: %v", cl.EndTransaction(ctx, kgo.TryCommit))
			select {
			case <-a.Fired():
			case <-time.After(patience):
				t.Fatal("the trigger did not fire")
			}
			if got := seen.Load(); got != tc.seen {
				t.Errorf("the broker saw EndTxn %d times, want %d", got, tc.seen)
			}
		})
	}
}
