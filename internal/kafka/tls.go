package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// TLS says how connections are secured. The fields but Enabled mean nothing without it.
type TLS struct {
	Enabled bool
	// CAPath is a PEM file of the authorities that are trusted; default the system's.
	CAPath string
	// CertPath and KeyPath are the PEM files of the client certificate; both or none.
	CertPath, KeyPath string
	// ServerName is the name that certificates are checked against; default the host that is dialled.
	ServerName string
	// InsecureSkipVerify takes any certificate; for experiments only.
	InsecureSkipVerify bool
}

func (t TLS) faults() []error {
	var faults []error
	if (t.CertPath == "") != (t.KeyPath == "") {
		faults = append(faults, errors.New("tls: a client certificate needs both the certificate and its key"))
	}
	if !t.Enabled && t != (TLS{}) {
		faults = append(faults, errors.New("tls: settings are given, but tls is not enabled"))
	}
	return faults
}

// config reads the files.
func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: t.ServerName,
		//nolint:gosec // only what the operator asked for by name
		InsecureSkipVerify: t.InsecureSkipVerify,
	}
	if t.CAPath != "" {
		pool, err := readCAs(t.CAPath)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if t.CertPath != "" {
		cert, err := tls.LoadX509KeyPair(t.CertPath, t.KeyPath)
		if err != nil {
			return nil, fmt.Errorf("read the tls client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

func readCAs(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path) //nolint:gosec // the operator says which file
	if err != nil {
		return nil, fmt.Errorf("read the tls authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the tls authorities: %s holds no PEM certificate", path)
	}
	return pool, nil
}

// dialFunc opens a connection.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// tlsDialer secures the connections of another dialer.
func tlsDialer(dial dialFunc, config *tls.Config) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := config.Clone()
		if c.ServerName == "" {
			if c.ServerName, _, err = net.SplitHostPort(addr); err != nil {
				return nil, errors.Join(fmt.Errorf("dial with tls: %w", err), raw.Close())
			}
		}
		conn := tls.Client(raw, c)
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("dial with tls: %w", err), raw.Close())
		}
		return conn, nil
	}
}
