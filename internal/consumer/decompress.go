package consumer

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// skippable makes a batch that can't be decompressed one that would be too large. At such a one the client stops and says where the
// next begins, so that it becomes a dead letter; after any other error nobody could read on, and whoever wrote the batch would have
// stopped its partition. Brokers take, for one, a small zstd frame that asks for a window of 128 MiB.
type skippable struct{ bounded kgo.Decompressor }

// Decompress implements kgo.Decompressor.
func (s skippable) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	out, err := s.bounded.Decompress(src, codec)
	if err != nil && codec <= kgo.CodecZstd { // A codec that we don't know is no reason to give up what is compressed with it.
		return nil, fmt.Errorf("%w: %w", kgo.ErrMaxDecompress, err)
	}
	return out, err
}

// decompressor decompresses what cl fetches, within its bound.
func decompressor(cl *kgo.Client) kgo.Decompressor {
	bounded, ok := cl.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return kgo.DefaultDecompressor()
	}
	return skippable{bounded}
}
