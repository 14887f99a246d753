package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/kafka"
	"github.com/lathe-run/lathe/schemas"
)

// event is one output event of any topic.
type event struct {
	*schemas.OutputRecord
	env *schemas.Envelope
}

// readerOptions say what a reader reads.
type readerOptions struct {
	// fromEnd starts at what comes next, else at the beginning.
	fromEnd bool
	// status adds the ephemeral events.
	status bool
}

// reader reads the output topics, only what is committed, and brings the events of each turn into order.
type reader struct {
	cl     *kgo.Client
	dec    *schemas.Decoder
	merger *merger
}

// openReader returns a reader that knows from where it reads, so that what is sent afterwards is read.
func openReader(ctx context.Context, s *app.Settings, registry *kafka.Registry, o readerOptions) (*reader, error) {
	n := s.Topics()
	topics := []string{n.ToolEvents, n.TurnEvents}
	if o.status {
		topics = append(topics, n.TurnStatus)
	}
	from, err := offsets(ctx, s, o.fromEnd, topics)
	if err != nil {
		return nil, err
	}
	cl, err := clientConfig(s).NewClient(
		kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(250*time.Millisecond),
	)
	if err != nil {
		return nil, refusedError{err}
	}
	return &reader{cl: cl, dec: app.NewDecoder(s, registry), merger: newMerger()}, nil
}

// offsets are the ends, or the starts, of all partitions of the topics.
func offsets(ctx context.Context, s *app.Settings, ends bool, topics []string) (map[string]map[int32]kgo.Offset, error) {
	cl, err := clientConfig(s).NewClient()
	if err != nil {
		return nil, refusedError{err}
	}
	defer cl.Close()
	list := kadm.NewClient(cl).ListStartOffsets
	if ends {
		list = kadm.NewClient(cl).ListEndOffsets
	}
	listed, err := list(ctx, topics...)
	if err == nil {
		err = listed.Error()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, fmt.Errorf("read %s: the topics do not exist yet; a worker makes them when it starts", strings.Join(topics, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("look up offsets of %s: %w", strings.Join(topics, ", "), err)
	}
	out := make(map[string]map[int32]kgo.Offset)
	listed.Each(func(o kadm.ListedOffset) {
		if out[o.Topic] == nil {
			out[o.Topic] = make(map[int32]kgo.Offset)
		}
		out[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset)
	})
	return out, nil
}

// next returns the next events in order, of turns that are wanted (nil wants all).
func (r *reader) next(ctx context.Context, wanted func(string) bool) ([]event, error) {
	for {
		poll, cancel := context.WithTimeout(ctx, mergeWait)
		fetches := r.cl.PollFetches(poll)
		cancel()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := firstError(fetches); err != nil {
			return nil, err
		}
		r.take(ctx, fetches, wanted)
		if out := r.merger.ready(time.Now()); len(out) > 0 {
			return out, nil
		}
	}
}

func (r *reader) take(ctx context.Context, fetches kgo.Fetches, wanted func(string) bool) {
	fetches.EachRecord(func(rec *kgo.Record) {
		ev, err := decodeOutput(ctx, r.dec, rec)
		if err != nil {
			return // Not an event: someone else writes to the topic.
		}
		if wanted == nil || wanted(ev.env.TurnID) {
			r.merger.add(ev, time.Now())
		}
	})
}

func decodeOutput(ctx context.Context, dec *schemas.Decoder, rec *kgo.Record) (event, error) {
	headers := make([]schemas.Header, len(rec.Headers))
	for i, h := range rec.Headers {
		headers[i] = schemas.Header(h)
	}
	out, err := dec.DecodeOutput(ctx, rec.Value, headers)
	if err != nil {
		return event{}, fmt.Errorf("read %s/%d at %d: %w", rec.Topic, rec.Partition, rec.Offset, err)
	}
	return event{OutputRecord: out, env: out.Envelope()}, nil
}

func firstError(fetches kgo.Fetches) error {
	var err error
	fetches.EachError(func(topic string, partition int32, e error) {
		if err == nil && !errors.Is(e, context.DeadlineExceeded) && !errors.Is(e, context.Canceled) {
			err = fmt.Errorf("read %s/%d: %w", topic, partition, e)
		}
	})
	return err
}

func (r *reader) close() { r.cl.Close() }

// until tries again every 50 ms until there is no error, or ctx ends: then it returns why, and the last error.
func until(ctx context.Context, try func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
