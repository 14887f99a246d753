package netcut

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes of what is read of a frame: the length, then of a request key, version and correlation id, of a response the
// correlation id.
const (
	lengthBytes         = 4
	requestHeaderBytes  = lengthBytes + 8
	responseHeaderBytes = lengthBytes + 4
)

var errFrame = errors.New("what came is no frame of Kafka")

// request is what is read of a request; size is that of the whole frame.
type request struct {
	size        int64
	key         int16
	correlation int32
}

// response is what is read of a response.
type response struct {
	size        int64
	correlation int32
}

func peekRequest(in *bufio.Reader) (request, error) {
	head, size, err := peekFrame(in, requestHeaderBytes)
	if err != nil {
		return request{}, fmt.Errorf("read a request: %w", err)
	}
	return request{
		size:        size,
		key:         int16(binary.BigEndian.Uint16(head[lengthBytes:])),   //nolint:gosec // the same bits
		correlation: int32(binary.BigEndian.Uint32(head[lengthBytes+4:])), //nolint:gosec // the same bits
	}, nil
}

func peekResponse(in *bufio.Reader) (response, error) {
	head, size, err := peekFrame(in, responseHeaderBytes)
	if err != nil {
		return response{}, fmt.Errorf("read a response: %w", err)
	}
	return response{
		size:        size,
		correlation: int32(binary.BigEndian.Uint32(head[lengthBytes:])), //nolint:gosec // the same bits
	}, nil
}

// peekFrame returns the first bytes of the next frame, which stay unread, and its size.
func peekFrame(in *bufio.Reader, header int) ([]byte, int64, error) {
	head, err := in.Peek(header)
	if err != nil {
		return nil, 0, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head))) + lengthBytes //nolint:gosec // Kafka's length is signed
	if size < int64(header) {
		return nil, 0, errFrame
	}
	return head, size, nil
}
