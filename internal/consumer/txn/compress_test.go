package txn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// events is text as batches have it: events with the same fields and words that come again, but not in the same order.
func events(size int) []byte {
	rng := rand.New(rand.NewPCG(1, uint64(size)))
	words := make([]string, 4000)
	for i := range words {
		word := make([]byte, 2+rng.IntN(9))
		for j := range word {
			word[j] = byte('a' + rng.IntN(26))
		}
		words[i] = string(word)
	}
	var out []byte
	for len(out) < size {
		text := make([]string, 10+rng.IntN(150))
		for i := range text {
			text[i] = words[rng.IntN(len(words))]
		}
		out = fmt.Appendf(out, `{"specversion":"1.0","id":"%016x/3","source":"lathe/app","type":"lathe.turn.message","time":"2026-01-02T03:04:05.%06dZ",`+
			`"turn":"%016x","session":"s-%06d","data":{"role":"assistant","text":"%s"}}`,
			rng.Uint64(), rng.IntN(1e6), rng.Uint64(), rng.IntN(1e6), strings.Join(text, " "))
	}
	return out[:size]
}

func randomBytes(size int) []byte {
	rng := rand.New(rand.NewPCG(2, uint64(size)))
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

func batches() map[string][]byte {
	return map[string][]byte{
		"empty":              {},
		"one byte":           {7},
		"tiny":               []byte("twelve bytes"),
		"small":              events(900),
		"a block":            events(int(blockBytes)),
		"a block and a byte": events(int(blockBytes) + 1),
		"large":              events(3_500_000),
		"zeros":              make([]byte, 1_000_000),
		"incompressible":     randomBytes(700_000),
	}
}

// TestCompressor_WritesWhatReadersTake uses one compressor for all batches at the same time, as the brokers' connections do.
func TestCompressor_WritesWhatReadersTake(t *testing.T) {
	t.Parallel()
	var c compressor
	var all sync.WaitGroup
	for name, batch := range batches() {
		for range 3 {
			all.Go(func() {
				var dst bytes.Buffer
				frame, codec := c.Compress(&dst, batch)
				if codec != kgo.CodecLz4 {
					t.Errorf("%s: got codec %d", name, codec)
				}
				if got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(frame))); err != nil || !bytes.Equal(got, batch) {
					t.Errorf("%s: the library reads %d bytes, %v; want %d", name, len(got), err, len(batch))
				}
				if got, err := kgo.DefaultDecompressor().Decompress(frame, codec); err != nil || !bytes.Equal(got, batch) {
					t.Errorf("%s: kgo reads %d bytes, %v; want %d", name, len(got), err, len(batch))
				}
			})
		}
	}
	all.Wait()
}

// TestCompressor_WritesFramesThatKafkaTakes reads frames as Kafka's Lz4BlockInputStream does, by the format's description:
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md.
func TestCompressor_WritesFramesThatKafkaTakes(t *testing.T) {
	t.Parallel()
	var c compressor
	for name, batch := range batches() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dst bytes.Buffer
			frame, _ := c.Compress(&dst, batch)
			// The magic number; version 1, independent blocks, no checksums, no size; blocks of 256 KiB; the second byte of the XXH32
			// of the two bytes before it.
			header := []byte{0x04, 0x22, 0x4d, 0x18, 0b0110_0000, 5 << 4, 0xfb}
			if !bytes.HasPrefix(frame, header) {
				t.Fatalf("got header % x, want % x", frame[:len(header)], header)
			}
			if got := kafkaReads(t, frame[len(header):]); !bytes.Equal(got, batch) {
				t.Fatalf("got %d bytes that differ from the batch's %d", len(got), len(batch))
			}
		})
	}
}

// kafkaReads decodes what comes after a frame's header: blocks behind their length, whose highest bit says that it is not compressed, and
// a length of zero.
func kafkaReads(t *testing.T, frame []byte) (out []byte) {
	t.Helper()
	block := make([]byte, blockBytes)
	for {
		size := binary.LittleEndian.Uint32(frame)
		stored := size&(1<<31) != 0
		size &^= 1 << 31
		frame = frame[4:]
		if size == 0 {
			equal(t, len(frame), 0)
			return out
		}
		if size > uint32(blockBytes) {
			t.Fatalf("got a block of %d bytes", size)
		}
		if stored {
			out = append(out, frame[:size]...)
		} else {
			n, err := lz4.UncompressBlock(frame[:size], block)
			must(t, err)
			out = append(out, block[:n]...)
		}
		frame = frame[size:]
	}
}

// sent notes how the batches that a client writes to one topic are compressed.
type sent struct {
	mu     sync.Mutex
	topic  string
	codecs []kgo.CompressionCodecType
}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (s *sent) OnProduceBatchWritten(_ kgo.BrokerMetadata, topic string, _ int32, m kgo.ProduceBatchMetrics) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if topic == s.topic {
		s.codecs = append(s.codecs, kgo.CompressionCodecType(m.CompressionType))
	}
}

// TestRing_CompressesWhatGetsSmaller sends a batch that LZ4 makes smaller, one that it cannot, and one that is too small for it.
func TestRing_CompressesWhatGetsSmaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bed := newFake(t, 1, 2).bed
		written := &sent{topic: bed.output}
		bed.last = func() []kgo.Opt { return []kgo.Opt{kgo.WithHooks(written)} }
		w := bed.worker()
		text, noise := events(600_000), randomBytes(600_000)
		var want [][]byte
		for _, value := range [][]byte{text, noise, []byte("x")} {
			c := w.cycle("cycle", 0)
			c.Records = []*kgo.Record{{Topic: bed.output, Partition: 0, Value: value}}
			res, err := w.ring.Commit(t.Context(), c)
			must(t, err)
			requireOutcome(t, res, Committed, nil)
			w.apply(c, res)
			want = append(want, value)
		}
		synctest.Wait() // Hooks are called in goroutines of their own.
		written.mu.Lock()
		defer written.mu.Unlock()
		equal(t, written.codecs, []kgo.CompressionCodecType{kgo.CodecLz4, kgo.CodecNone, kgo.CodecNone})
		for i, r := range bed.read(bed.output) {
			if !bytes.Equal(r.Value, want[i]) {
				t.Fatalf("got another value of %d bytes in record %d, want %d", len(r.Value), i, len(want[i]))
			}
		}
	})
}

// BenchmarkCompressor compares with kgo's own compressor.
func BenchmarkCompressor(b *testing.B) {
	theirs, err := kgo.DefaultCompressor(kgo.Lz4Compression(), kgo.NoCompression())
	must(b, err)
	for _, size := range []int{2_000, 20_000, 100_000, 500_000} {
		batch := events(size)
		for name, c := range map[string]kgo.Compressor{"ours": &compressor{}, "kgo": theirs} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(size))
				var dst bytes.Buffer
				for b.Loop() {
					dst.Reset()
					c.Compress(&dst, batch)
				}
				b.ReportMetric(float64(dst.Len())/float64(size), "of-input")
			})
		}
	}
}
