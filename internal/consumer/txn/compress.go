package txn

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// blockBytes is how much a compressed block holds at most. Who writes or reads a frame keeps a buffer or two of this size. In blocks of
// 64 KiB a large batch takes a fifth more, since what repeats is learned anew in each; beyond this size it hardly gets smaller.
const blockBytes = lz4.Block256Kb

// Compression is the option by which a producer compresses its batches as those of a Ring do.
func Compression() kgo.Opt { return kgo.WithCompressor(&compressor{}) }

// compressor compresses batches with LZ4. Its frames are as those of Kafka's own client, without a checksum of their content: the batch
// has one. The frames of kgo's own compressor have one too, and blocks of 4 MiB. The zero value is ready; it is safe for concurrent use.
//
// What Kafka takes is in its class Lz4BlockInputStream: frames of version 1 whose blocks do not refer to each other.
type compressor struct{ writers sync.Pool }

// Compress implements kgo.Compressor. Any version of the protocol that knows transactions takes LZ4, so no flag matters. A batch that did
// not get smaller, or of which nothing is returned, is sent as it is: kgo sees to it.
func (c *compressor) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	if err := c.write(dst, src); err != nil {
		return nil, kgo.CodecError
	}
	return dst.Bytes(), kgo.CodecLz4
}

// write appends the frame of src to dst. A writer that failed is not used again; one that did not no longer holds dst.
func (c *compressor) write(dst *bytes.Buffer, src []byte) error {
	w, err := c.writer()
	if err != nil {
		return err
	}
	w.Reset(dst)
	if _, err := w.Write(src); err != nil {
		return fmt.Errorf("compress a batch: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("end a compressed batch: %w", err)
	}
	w.Reset(nil)
	c.writers.Put(w)
	return nil
}

func (c *compressor) writer() (*lz4.Writer, error) {
	if w, ok := c.writers.Get().(*lz4.Writer); ok {
		return w, nil
	}
	w := lz4.NewWriter(nil)
	if err := w.Apply(lz4.BlockSizeOption(blockBytes), lz4.ChecksumOption(false)); err != nil {
		return nil, fmt.Errorf("make a compressor: %w", err)
	}
	return w, nil
}
