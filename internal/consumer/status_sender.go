package consumer

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/consumer/txn"
	"github.com/lathe-run/lathe/schemas"
)

// StatusSender is client S: it writes ephemeral events outside any transaction. It never blocks and never fails its caller:
// when the brokers are slow, events are dropped. It is safe for concurrent use.
type StatusSender struct {
	cl    *kgo.Client
	topic string
}

// statusBuffer is how many events wait to be sent at most; more are dropped.
const statusBuffer = 1024

// NewStatusSender makes the client for a topic.
func NewStatusSender(topic string, newClient func(opts ...kgo.Opt) (*kgo.Client, error)) (*StatusSender, error) {
	cl, err := newClient(kgo.MaxBufferedRecords(statusBuffer), txn.Compression(), kgo.RecordRetries(2))
	if err != nil {
		return nil, fmt.Errorf("make the client of %s: %w", topic, err)
	}
	return &StatusSender{cl: cl, topic: topic}, nil
}

// Send sends one event, or drops it.
func (s *StatusSender) Send(ctx context.Context, key, value []byte, headers []schemas.Header) {
	rec := &kgo.Record{Topic: s.topic, Key: key, Value: value, Headers: make([]kgo.RecordHeader, len(headers))}
	for i, h := range headers {
		rec.Headers[i] = kgo.RecordHeader(h)
	}
	s.cl.TryProduce(context.WithoutCancel(ctx), rec, nil)
}

// Close sends what waits, as long as ctx allows.
func (s *StatusSender) Close(ctx context.Context) {
	_ = s.cl.Flush(ctx) // What is not sent by now is dropped.
	s.cl.Close()
}
