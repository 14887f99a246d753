package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// testCertificate returns a certificate for example.com and 127.0.0.1, and the file of the authority that signed it.
func testCertificate(tb testing.TB) (tls.Certificate, string) {
	tb.Helper()
	server := httptest.NewTLSServer(nil)
	server.Close()
	cert := server.TLS.Certificates[0]
	path := filepath.Join(tb.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		tb.Fatal(err)
	}
	return cert, path
}

func TestTLS_TakesOnlyCertificatesItWasTold(t *testing.T) {
	t.Parallel()
	cert, ca := testCertificate(t)
	direct := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	for _, tc := range []struct {
		name string
		tls  TLS
		dial func(ctx context.Context, network, addr string) (net.Conn, error)
		want string
	}{
		{name: "known authority", tls: TLS{CAPath: ca}},
		{name: "known authority through a dialer", tls: TLS{CAPath: ca}, dial: direct},
		{name: "unknown authority", want: "unknown authority"},
		{name: "unknown authority through a dialer", dial: direct, want: "unknown authority"},
		{name: "verification off", tls: TLS{InsecureSkipVerify: true}},
		{name: "other name", tls: TLS{CAPath: ca, ServerName: "example.com"}},
		{name: "wrong name", tls: TLS{CAPath: ca, ServerName: "broker.test"}, want: "not broker.test"},
		{name: "wrong name through a dialer", tls: TLS{CAPath: ca, ServerName: "broker.test"}, dial: direct, want: "not broker.test"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := newFake(t, kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
			cfg := testConfig(t, fake.ListenAddrs()...)
			cfg.TLS, cfg.Dialer = tc.tls, tc.dial
			cfg.TLS.Enabled = true
			err := testClient(t, cfg, kgo.RequestRetries(0)).Ping(t.Context())
			if got := errorText(err); !strings.Contains(got, tc.want) || (tc.want == "") != (err == nil) {
				t.Errorf("ping = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTLS_UnreadableFilesAreErrorsOfTheStart(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "garbage.pem")
	if err := os.WriteFile(garbage, []byte("no pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		tls  TLS
		want string
	}{
		{name: "no authority file", tls: TLS{CAPath: "/nowhere.pem"}, want: "no such file"},
		{name: "no PEM in it", tls: TLS{CAPath: garbage}, want: "holds no PEM certificate"},
		{name: "no client certificate", tls: TLS{CertPath: garbage, KeyPath: garbage}, want: "client certificate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t, "localhost:1")
			cfg.TLS = tc.tls
			cfg.TLS.Enabled = true
			if _, err := cfg.Options(); !strings.Contains(errorText(err), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTLS_SendsTheClientCertificate(t *testing.T) {
	t.Parallel()
	cert, ca := testCertificate(t)
	dir := t.TempDir()
	certPath, keyPath := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		certPath: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, keyPath: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fake := newFake(t, kfake.NumBrokers(1), kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert,
	}))
	cfg := testConfig(t, fake.ListenAddrs()...)
	cfg.TLS = TLS{Enabled: true, CAPath: ca}
	if err := testClient(t, cfg, kgo.RequestRetries(0)).Ping(t.Context()); err == nil {
		t.Error("the broker takes a client without certificate, the test proves nothing")
	}
	cfg.TLS.CertPath, cfg.TLS.KeyPath = certPath, keyPath
	if err := testClient(t, cfg, kgo.RequestRetries(0)).Ping(t.Context()); err != nil {
		t.Errorf("ping with the certificate: %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// tlsServer serves a handler and returns its URL.
func tlsServer(tb testing.TB, cert tls.Certificate, handler http.Handler) string {
	tb.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	tb.Cleanup(server.Close)
	return server.URL
}
