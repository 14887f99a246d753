package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// NewClient makes a client with the options that every client of the worker has, and with those given.
func (c Config) NewClient(opts ...kgo.Opt) (*kgo.Client, error) {
	base, err := c.Options()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("make a kafka client: %w", err)
	}
	return cl, nil
}
