package consumer

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lathe-run/lathe/schemas"
)

func inBubble(t *testing.T, test func(f *fake)) {
	t.Helper()
	bubbleOf(t, 1, test)
}

func bubbleOf(t *testing.T, brokers int, test func(f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newFake(t, brokers, 2)) })
}

// TestWorker_GoesOnAfterEveryErrorOfACycle goes through what brokers answer to the requests of a cycle: whatever it is, every
// turn has its output once.
func TestWorker_GoesOnAfterEveryErrorOfACycle(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		key  kmsg.Key
		err  *kerr.Error
	}{
		{"offsets, the group has rebalanced", kmsg.TxnOffsetCommit, kerr.IllegalGeneration},
		{"offsets, the member epoch is stale", kmsg.TxnOffsetCommit, kerr.StaleMemberEpoch},
		{"offsets, the member is unknown", kmsg.TxnOffsetCommit, kerr.UnknownMemberID},
		{"offsets, fenced", kmsg.TxnOffsetCommit, kerr.InvalidProducerEpoch},
		{"offsets, forbidden", kmsg.TxnOffsetCommit, kerr.GroupAuthorizationFailed},
		{"offsets, timed out", kmsg.TxnOffsetCommit, kerr.RequestTimedOut},
		{"produce, fenced", kmsg.Produce, kerr.InvalidProducerEpoch},
		{"produce, must be aborted", kmsg.Produce, kerr.TransactionAbortable},
		{"produce, the topic is not known yet", kmsg.Produce, kerr.UnknownTopicOrPartition},
		{"end, unknown error", kmsg.EndTxn, kerr.UnknownServerError},
		{"end, fenced", kmsg.EndTxn, kerr.ProducerFenced},
		{"end, the state is another", kmsg.EndTxn, kerr.InvalidTxnState},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(f *fake) {
				p := f.start().running(bedPartitions)
				f.load(40, 8)
				f.handled()
				fault := kfake.Fault{Keys: []kmsg.Key{tc.key}, Err: tc.err, Count: 2, TopLevel: tc.key == kmsg.EndTxn}
				if tc.key == kmsg.Produce {
					fault.Topic = f.changelog.Name
				}
				met := f.cluster.Fault(fault)
				for range 10 {
					f.load(8, 8)
					<-time.After(5 * time.Millisecond)
				}
				f.handled()
				if met.Hits() == 0 {
					f.t.Error("the fault was never met")
				}
				f.exactlyOnce(8)
				p.running(bedPartitions).end()
				p.stateIsTheChangelog()
			})
		})
	}
}

func TestWorker_HaltsAPartitionThatIsOutOfRangeOnceAndAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		s := sessionOn(1, 1)
		f.produce(turn(s, "one"), turn(s, "two"))
		f.handled()
		p.drain()
		f.produce(turn(s, "three"), turn(s, "four"))
		_, err := f.admin.DeleteRecords(f.t.Context(), kadm.Offsets{f.turns.Name: {1: {Topic: f.turns.Name, Partition: 1, At: 3}}})
		must(f.t, err)
		p = f.start()
		f.produce(turn(sessionOn(2, 1), "other"))
		f.eventually("partition 1 is halted", func() bool { return p.status()[1] == stateHalted.String() })
		f.eventually("the others go on", func() bool { return f.committed()[2].At == 1 })
		fetches := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
		<-time.After(10 * time.Second)
		if n := fetches.Hits(); n > 1000 { // One each 20 ms is the idle fetch of the others.
			f.t.Errorf("%d fetches in 10 s", n)
		}
		if reason := p.worker.Status().ReadyReason; !strings.Contains(reason, "out of range") {
			f.t.Errorf("ready: %q", reason)
		}
		if at := f.committed()[1].At; at != 2 {
			f.t.Errorf("offset %d is committed, want 2 as before", at)
		}
		p.end()
	})
}

// TestWorker_WaitsForTheRegistry lets a decoder fail for a while in one partition: nothing is lost, nobody else waits, and the
// registry is not asked all the time.
func TestWorker_WaitsForTheRegistry(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		down := &flakyDecoder{Decoder: schemas.NewDecoder(schemas.DecoderOptions{}), until: time.Now().Add(10 * time.Minute)}
		p := f.start(calm, func(s *setup) { s.deps.Decoder = down }).running(bedPartitions)
		s := sessionOn(1, 1)
		f.produce(turn(s, "first"), turn(s, "needs-registry"), turn(s, "last"), turn(sessionOn(2, 1), "other"))
		f.eventually("the other is done", func() bool { return f.committed()[2].At == 1 })
		f.eventually("partition 1 waits", func() bool {
			return p.statusOf(func(s PartitionStatus) string { return s.Waiting })[1] != ""
		})
		<-time.After(11 * time.Minute)
		f.handled()
		if diff := cmp.Diff([]string{"first 1", "needs-registry 2", "last 3"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		if n := down.asked.Load(); n > 40 {
			f.t.Errorf("the registry was asked %d times in 10 minutes", n)
		}
		if waits := p.statusOf(func(s PartitionStatus) string { return s.Waiting })[1]; waits != "" {
			f.t.Errorf("partition 1 still waits: %s", waits)
		}
		p.end()
	})
}

type flakyDecoder struct {
	Decoder

	until time.Time
	asked atomic.Int32
}

func (d *flakyDecoder) Decode(ctx context.Context, value []byte, headers []schemas.Header) (*schemas.Decoded, error) {
	if bytes.Contains(value, []byte("needs-registry")) && time.Now().Before(d.until) {
		d.asked.Add(1)
		return nil, &schemas.Error{Class: schemas.ClassRetryable, Code: schemas.CodeSchemaUnknown, Message: "the registry does not answer"}
	}
	if bytes.Contains(value, []byte("panics")) {
		panic("a bug of the decoder")
	}
	return d.Decoder.Decode(ctx, value, headers)
}

func TestWorker_SurvivesAPanicOfTheDecoder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start(func(s *setup) { s.deps.Decoder = &flakyDecoder{Decoder: schemas.NewDecoder(schemas.DecoderOptions{})} })
		s := sessionOn(1, 1)
		f.produce(turn(s, "panics"), turn(s, "good"))
		f.handled()
		if diff := cmp.Diff([]string{"good 1"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		if letters := f.deadLetters(); len(letters) != 1 || letters[0].Reason != "undecodable" {
			f.t.Errorf("dead letters %+v", letters)
		}
		p.end()
	})
}

// TestWorker_SkipsABatchThatWouldFillTheMemory sends a batch that decompresses to more than the worker takes. It is a dead letter as a
// whole, even if one of its records were known.
func TestWorker_SkipsABatchThatWouldFillTheMemory(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		s := sessionOn(1, 1)
		f.produce(turn(s, "before"))
		bomb := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()),
			kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerLinger(10*time.Millisecond))
		var records []*kgo.Record
		for range 4 {
			records = append(records, &kgo.Record{Topic: f.turns.Name, Partition: 1, Key: []byte(s), Value: make([]byte, 1<<20)})
		}
		must(f.t, bomb.ProduceSync(f.t.Context(), records...).FirstErr())
		f.produce(turn(s, "after"))
		r := &rememberer{echo: &echo{}, turns: map[int64]*schemas.TurnEvent{4: {TurnID: "last", SessionID: s}}}
		p := f.start(r.handles, with(func(c *Config) { c.MaxDecompressBytes = 2 << 20 }))
		f.handled()
		if diff := cmp.Diff([]string{"before 1", "after 2"}, f.outputs()[s]); diff != "" {
			f.t.Errorf("outputs (-want +got):\n%s", diff)
		}
		letters := f.read(f.letters.Name)
		if len(letters) != 1 {
			f.t.Fatalf("%d dead letters, want 1", len(letters))
		}
		own := map[string]string{}
		for _, h := range letters[0].Headers {
			own[h.Key] = string(h.Value)
		}
		if own[headerReason] != "too_large" || own[headerOffset] != "4" || own[headerCut] != "true" || !strings.Contains(own[headerDetail], "1 to 4") {
			f.t.Errorf("headers %v", own)
		}
		p.end()
	})
}

// asGiven gives every batch the same compressed form.
type asGiven struct {
	codec kgo.CompressionCodecType
	bytes []byte
}

func (a asGiven) Compress(*bytes.Buffer, []byte, ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	return a.bytes, a.codec
}

// TestWorker_SkipsABatchThatCannotBeDecompressed: one that is no compressed data at all, and one that is small and asks for a window of
// 128 MiB (RFC 8878, 3.1.1.1.2), which Apache Kafka takes.
func TestWorker_SkipsABatchThatCannotBeDecompressed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]asGiven{
		"noise as gzip":   {kgo.CodecGzip, []byte("this was never compressed")},
		"noise as snappy": {kgo.CodecSnappy, []byte("this was never compressed")},
		"noise as lz4":    {kgo.CodecLz4, []byte("this was never compressed")},
		"noise as zstd":   {kgo.CodecZstd, []byte("this was never compressed")},
		"a huge window": {kgo.CodecZstd, []byte{
			0x28, 0xb5, 0x2f, 0xfd, // The magic number,
			0, 17 << 3, // a frame of unknown size, with a window of 2^(10+17) bytes,
			1 | 5<<3, 0, 0, 'h', 'e', 'l', 'l', 'o', // and in it a last, raw block of 5.
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, 1, 2) // In no bubble: a finalizer closes zstd's decoders, and would do so from outside.
			s := sessionOn(1, 1)
			f.produce(turn(s, "before"))
			poison := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.WithCompressor(c), kgo.ProducerLinger(0))
			bad := turn(s, "lost")
			bad.Topic = f.turns.Name
			must(t, poison.ProduceSync(t.Context(), bad).FirstErr())
			f.produce(turn(s, "after"))
			p := f.start()
			f.handled()
			if diff := cmp.Diff([]string{"before 1", "after 2"}, f.outputs()[s]); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			if letters := f.deadLetters(); len(letters) != 1 || letters[0].Reason != "too_large" {
				t.Errorf("dead letters %+v, want the batch", letters)
			}
			p.end()
		})
	}
}

func TestWorker_GivesUpWhenItIsRefusedForTooLong(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start(calm, with(func(c *Config) { c.RefusalGrace = 5 * time.Minute })).running(bedPartitions)
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: f.output.Name, Err: kerr.TopicAuthorizationFailed, Count: -1})
		began := time.Now()
		f.load(1, 1)
		f.eventually("it is not ready", func() bool { return !p.worker.Status().Ready })
		<-p.ended
		if took := time.Since(began); !errors.Is(p.err, kerr.TopicAuthorizationFailed) || took < 4*time.Minute || took > 7*time.Minute {
			f.t.Errorf("ended after %s with %v", took, p.err)
		}
	})
}

func TestWorker_EndsWhenNoCycleSucceeds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start(calm, with(func(c *Config) { c.Stall = time.Minute })).running(bedPartitions)
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.RebalanceInProgress, Count: -1})
		f.load(1, 1)
		<-p.ended
		if !errors.Is(p.err, errStalled) {
			f.t.Errorf("ended with %v", p.err)
		}
	})
}

func TestWorker_HaltsWhoWritesToATopicThatIsGone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(f *fake) {
		p := f.start().running(bedPartitions)
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: f.output.Name, Err: kerr.UnknownTopicID, Count: -1})
		f.produce(turn(sessionOn(1, 1), "one"))
		f.eventually("partition 1 is halted", func() bool {
			return cmp.Equal(sorted(p.status()), []string{"running", "halted", "running", "running"})
		})
		if at := f.committed()[1].At; at != 0 {
			f.t.Errorf("offset %d is committed", at)
		}
		p.end()
	})
}
