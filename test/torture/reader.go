package torture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/oracle"
	"github.com/lathe-run/lathe/test/kafka/kafkatest"
)

// reader follows what a deployment puts out, read_committed, and keeps it.
type reader struct {
	bed     *Bed
	decoder *schemas.Decoder

	mu sync.Mutex
	// next is the position in each partition, behind control records too.
	next    map[string]map[int32]int64
	outputs []oracle.Output
	letters []*kgo.Record
	state   []*kgo.Record
	ends    map[string]bool
	failed  error
}

func newReader(b *Bed) *reader {
	return &reader{
		bed: b, decoder: schemas.NewDecoder(schemas.DecoderOptions{}),
		next: make(map[string]map[int32]int64), ends: make(map[string]bool),
	}
}

func (r *reader) topics() []string {
	b := r.bed
	return []string{b.Topic("tool-events"), b.Topic("turn-events"), b.Topic("turns.dlq"), b.Topic("changelog")}
}

// run reads from the beginning until ctx ends. The topics must be there.
func (r *reader) run(ctx context.Context) error {
	from := make(map[string]map[int32]kgo.Offset)
	topics, err := r.bed.adm.ListTopics(ctx, r.topics()...)
	if err != nil {
		return fmt.Errorf("look for the output topics: %w", err)
	}
	r.mu.Lock()
	for _, t := range topics {
		from[t.Topic], r.next[t.Topic] = make(map[int32]kgo.Offset), make(map[int32]int64)
		for p := range t.Partitions {
			from[t.Topic][p] = kgo.NewOffset().At(0)
		}
	}
	r.mu.Unlock()
	cl, err := r.bed.newClient(
		kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		r.mu.Lock()
		fetches.EachRecord(func(rec *kgo.Record) { r.takeLocked(ctx, rec) })
		err := r.failed
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) takeLocked(ctx context.Context, rec *kgo.Record) {
	r.next[rec.Topic][rec.Partition] = rec.Offset + 1
	switch {
	case rec.Attrs.IsControl():
	case rec.Topic == r.bed.Topic("turns.dlq"):
		r.letters = append(r.letters, rec)
	case rec.Topic == r.bed.Topic("changelog"):
		r.state = append(r.state, rec)
	default:
		r.eventLocked(ctx, rec)
	}
}

func (r *reader) eventLocked(ctx context.Context, rec *kgo.Record) {
	headers := make([]schemas.Header, len(rec.Headers))
	for i, h := range rec.Headers {
		headers[i] = schemas.Header(h)
	}
	out, err := r.decoder.DecodeOutput(ctx, rec.Value, headers)
	if err != nil {
		r.failed = errors.Join(r.failed, fmt.Errorf("decode the event at %s/%d:%d: %w", rec.Topic, rec.Partition, rec.Offset, err))
		return
	}
	env := out.Envelope()
	if env.Type == schemas.TypeTurnEnd {
		r.ends[env.TurnID] = true
	}
	r.outputs = append(r.outputs, oracle.Output{OutputRecord: out, Env: env, Rec: rec})
}

// fold is what the changelog comes to, as far as it was read.
func (r *reader) fold() map[int32]map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return kafkatest.Fold(r.state, turnPartitions)
}

// ended is how many turns have their end.
func (r *reader) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ends)
}

// atEnd reports whether the reader has read all that was written by now. What was committed may become visible only later, with
// the markers of its transaction, so it goes by the end of the log and not by the last stable offset.
func (r *reader) atEnd(ctx context.Context) bool {
	ends, err := r.bed.adm.ListEndOffsets(ctx, r.topics()...)
	if err != nil || ends.Error() != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	done := true
	ends.Each(func(o kadm.ListedOffset) { done = done && r.next[o.Topic][o.Partition] >= o.Offset })
	return done
}

// tell puts what was read into the evidence.
func (r *reader) tell(e *oracle.Evidence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Outputs, e.Letters, e.Changelog = r.outputs, r.letters, r.state
}
