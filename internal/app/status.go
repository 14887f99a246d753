package app

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/kafka"
	"github.com/lathe-run/lathe/schemas"
)

// statusSink writes what tools say about their progress. Until it is open, and whenever the brokers are slow, it drops.
type statusSink struct {
	out     atomic.Pointer[statusOut]
	counter atomic.Uint64
}

type statusOut struct {
	sender      *consumer.StatusSender
	encoder     schemas.Encoder
	worker      string
	incarnation uint64
}

func (s *statusSink) open(ctx context.Context, w *worker, registry *kafka.Registry) error {
	topic, enc := w.topics.TurnStatus.Name, w.settings.Encoding.Resolved().TurnStatus
	encoder, err := NewEncoder(ctx, w.settings, registry, topic, enc, schemas.RecordStatusEvent)
	if err != nil {
		return err
	}
	sender, err := consumer.NewStatusSender(topic, w.kafka.NewClient)
	if err != nil {
		return fmt.Errorf("open the status topic: %w", err)
	}
	s.out.Store(&statusOut{sender: sender, encoder: encoder, worker: w.instance, incarnation: incarnation()})
	return nil
}

func (s *statusSink) close(ctx context.Context) error {
	if o := s.out.Swap(nil); o != nil {
		o.sender.Close(ctx)
	}
	return nil
}

// emit sends one tool:status event, or drops it.
func (s *statusSink) emit(ctx context.Context, inv fact.Invocation, ref fact.Ref, text string) {
	o := s.out.Load()
	if o == nil {
		return
	}
	step, position := int32(ref.Step), int32(ref.Position) //nolint:gosec // Steps and positions are few.
	key := ref.Key(inv.TurnID)
	value, err := o.encoder.EncodeStatus(&schemas.StatusEvent{
		Envelope: schemas.Envelope{
			EventID: inv.TurnID + "/" + schemas.TypeToolStatus + key[len(inv.TurnID):] + "/" + strconv.FormatUint(o.incarnation, 16) + "/" + strconv.FormatUint(s.counter.Add(1), 10),
			Type:    schemas.TypeToolStatus, TurnID: inv.TurnID, SessionID: inv.SessionID, Agent: inv.Agent,
			At: time.Now(), Worker: o.worker, SchemaVersion: schemas.Version,
		},
		Step: &step, Position: &position, Text: text,
	})
	if err != nil {
		return // Best effort: a status that cannot be written is not worth a turn.
	}
	o.sender.Send(ctx, []byte(inv.SessionID), value, o.encoder.Headers())
}
