// Package kafka hides how the worker reaches a cluster and a Schema Registry: the client options behind its settings,
// the checks and the creation of its topics, and the lookup of schemas by id.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// softwareName is what brokers see as the name of the client software.
const softwareName = "lathe"

// Config says how to reach the brokers.
type Config struct {
	// Brokers are the seed brokers, host:port.
	Brokers []string
	// ClientID is what brokers log and meter; default lathe.
	ClientID string
	// Version is the release of the client software that brokers see; default dev.
	Version string
	// Rack is where this process runs, to fetch from the nearest replica; default none.
	Rack string
	// TLS secures the connections.
	TLS TLS
	// SASL logs in.
	SASL SASL
	// Dialer replaces the network, for tests; default a TCP dialer.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// Logger takes what the clients have to say; required.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.ClientID == "" {
		c.ClientID = softwareName
	}
	c.Version = softwareVersion(c.Version)
	c.SASL.Mechanism = strings.ToUpper(c.SASL.Mechanism)
	return c
}

// Validate returns every fault of the settings, one a line.
func (c Config) Validate() error {
	return errors.Join(slices.Concat(c.brokerFaults(), c.TLS.faults(), c.saslFaults())...)
}

func (c Config) brokerFaults() []error {
	var faults []error
	if len(c.Brokers) == 0 {
		faults = append(faults, errors.New("no brokers are given"))
	}
	for _, addr := range c.Brokers {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host == "" || port == "" {
			faults = append(faults, fmt.Errorf("broker %q is not host:port", addr))
		}
	}
	if c.Logger == nil {
		faults = append(faults, errors.New("no logger is given"))
	}
	return faults
}

// onLoopback reports whether no connection leaves this machine.
func (c Config) onLoopback() bool {
	for _, addr := range c.Brokers {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return false
		}
		if host == "localhost" {
			continue
		}
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return false
		}
	}
	return true
}

// Options returns the options that every client of the worker has, or every fault of the settings.
func (c Config) Options() ([]kgo.Opt, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("check the settings of the kafka clients: %w", err)
	}
	c = c.withDefaults()
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion(softwareName, c.Version),
		kgo.WithLogger(newClientLog(c.Logger)),
		// The worker has its own metrics; those that a broker may ask a client to push would double them.
		kgo.DisableClientMetrics(),
	}
	if c.Rack != "" {
		opts = append(opts, kgo.Rack(c.Rack))
	}
	network, err := c.network()
	if err != nil {
		return nil, err
	}
	return append(append(opts, network...), c.SASL.options()...), nil
}

// network returns the options of how connections are made.
func (c Config) network() ([]kgo.Opt, error) {
	if !c.TLS.Enabled {
		if c.Dialer == nil {
			return nil, nil
		}
		return []kgo.Opt{kgo.Dialer(c.Dialer)}, nil
	}
	config, err := c.TLS.config()
	if err != nil {
		return nil, err
	}
	if c.Dialer == nil {
		return []kgo.Opt{kgo.DialTLSConfig(config)}, nil
	}
	return []kgo.Opt{kgo.Dialer(tlsDialer(c.Dialer, config))}, nil
}

// softwareVersion makes v fit for Kafka, which takes letters, digits, dots and dashes with no dot or dash at an end; a
// client with anything else is refused.
func softwareVersion(v string) string {
	legal := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '-'
	}, v)
	if legal = strings.Trim(legal, ".-"); legal == "" {
		return "dev"
	}
	return legal
}
