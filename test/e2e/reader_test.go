package e2e_test

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/schemas"
)

// output is one event as a read_committed reader sees it.
type output struct {
	*schemas.OutputRecord

	env *schemas.Envelope
	rec *kgo.Record
}

// reader reads what a deployment has put out, from the start, and keeps it.
type reader struct {
	*bed

	cl      *kgo.Client
	decoder *schemas.Decoder
	topics  []string
	// next is the position in each partition, behind control records too.
	next    map[string]map[int32]int64
	outputs []output
	letters []*kgo.Record
	state   []*kgo.Record
	// faults is where the oracle puts what it finds when it is tested itself; nil fails the test.
	faults *[]string
}

// reader waits until the worker has made the topics.
func (b *bed) reader(opts ...func(*schemas.DecoderOptions)) *reader {
	b.Helper()
	var o schemas.DecoderOptions
	for _, opt := range opts {
		opt(&o)
	}
	r := &reader{
		bed: b, decoder: schemas.NewDecoder(o), next: make(map[string]map[int32]int64),
		topics: []string{b.topic("tool-events"), b.topic("turn-events"), b.topic("turns.dlq"), b.changelog()},
	}
	from := make(map[string]map[int32]kgo.Offset)
	b.eventually("the worker has made its topics", func() bool {
		listed, err := b.adm.ListStartOffsets(b.ctx, r.topics...)
		if err != nil || listed.Error() != nil {
			return false
		}
		listed.Each(func(o kadm.ListedOffset) {
			if from[o.Topic] == nil {
				from[o.Topic], r.next[o.Topic] = make(map[int32]kgo.Offset), make(map[int32]int64)
			}
			from[o.Topic][o.Partition], r.next[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset), o.Offset
		})
		return len(from) == len(r.topics)
	})
	r.cl = b.client(
		kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	return r
}

// poll takes what comes within a moment.
func (r *reader) poll() {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, 100*time.Millisecond)
	defer cancel()
	r.cl.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
		r.next[rec.Topic][rec.Partition] = rec.Offset + 1
		switch {
		case rec.Attrs.IsControl():
		case rec.Topic == r.topic("turns.dlq"):
			r.letters = append(r.letters, rec)
		case rec.Topic == r.changelog():
			r.state = append(r.state, rec)
		default:
			r.outputs = append(r.outputs, r.decode(rec))
		}
	})
}

func (r *reader) decode(rec *kgo.Record) output {
	r.Helper()
	headers := make([]schemas.Header, len(rec.Headers))
	for i, h := range rec.Headers {
		headers[i] = schemas.Header(h)
	}
	out, err := r.decoder.DecodeOutput(r.ctx, rec.Value, headers)
	if err != nil {
		r.Fatalf("event at %s/%d:%d does not decode: %v", rec.Topic, rec.Partition, rec.Offset, err)
	}
	return output{out, out.Envelope(), rec}
}

// until polls until the condition holds.
func (r *reader) until(what string, holds func() bool) {
	r.Helper()
	late := time.Now().Add(patience)
	for r.poll(); !holds(); r.poll() {
		if time.Now().After(late) {
			r.Fatalf("not in %s: %s; turns without an end: %v", patience, what, r.open())
		}
	}
}

// open are the turns that were sent and have no end yet.
func (r *reader) open() []string {
	var out []string
	for _, s := range r.sent {
		if r.count(s.id, schemas.TypeTurnEnd) == 0 {
			out = append(out, s.id)
		}
	}
	return out
}

// allEnded waits until every turn that was sent has its end.
func (r *reader) allEnded() {
	r.Helper()
	r.until("every turn ends", func() bool { return len(r.open()) == 0 })
}

// toEnd reads all that has been written by now. What was committed may become visible only later, with the markers of its
// transaction, so it goes by the end of the log and not by the last stable offset.
func (r *reader) toEnd() {
	r.Helper()
	ends, err := r.adm.ListEndOffsets(r.ctx, r.topics...)
	r.must(err)
	r.must(ends.Error())
	r.until("the reader has read all that was written", func() bool {
		done := true
		ends.Each(func(o kadm.ListedOffset) { done = done && r.next[o.Topic][o.Partition] >= o.Offset })
		return done
	})
}

// count counts the events of a type of a turn.
func (r *reader) count(turn, typ string) int {
	n := 0
	for _, o := range r.outputs {
		if o.env.TurnID == turn && o.env.Type == typ {
			n++
		}
	}
	return n
}

// end is the turn:end of a turn.
func (r *reader) end(turn string) *schemas.TurnOutput {
	r.Helper()
	for _, o := range r.outputs {
		if o.env.TurnID == turn && o.env.Type == schemas.TypeTurnEnd {
			return o.Turn
		}
	}
	r.Fatalf("turn %s has no end", turn)
	return nil
}

// events are the events of a turn that have a seq, in its order.
func (r *reader) events(turn string) []output {
	var out []output
	for _, o := range r.outputs {
		if o.env.TurnID == turn && o.env.Seq != nil {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b output) int { return int(*a.env.Seq - *b.env.Seq) })
	return out
}

// header is the value of the last header of a name.
func header(rec *kgo.Record, name string) string {
	for _, h := range slices.Backward(rec.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
