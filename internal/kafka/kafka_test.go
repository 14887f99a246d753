package kafka

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func testConfig(tb testing.TB, brokers ...string) Config {
	tb.Helper()
	return Config{Brokers: brokers, Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))}
}

func testClient(tb testing.TB, cfg Config, more ...kgo.Opt) *kgo.Client {
	tb.Helper()
	opts, err := cfg.Options()
	if err != nil {
		tb.Fatal(err)
	}
	cl, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

func TestConfig_NamesEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	full := func(change func(*Config)) Config {
		c := testConfig(t, "broker-1:9092", "broker-2:9092")
		change(&c)
		return c
	}
	for _, tc := range []struct {
		name   string
		config Config
		want   []string
	}{
		{name: "nothing set", config: Config{}, want: []string{"no brokers", "no logger"}},
		{name: "sound", config: full(func(*Config) {})},
		{
			name:   "addresses without port, host and brackets",
			config: full(func(c *Config) { c.Brokers = []string{"a", ":9092", "::1:9092", "[::1]:9092"} }),
			want:   []string{`"a"`, `":9092"`, `"::1:9092"`},
		},
		{
			name:   "tls settings without tls",
			config: full(func(c *Config) { c.TLS.CAPath = "ca.pem" }), want: []string{"tls is not enabled"},
		},
		{
			name:   "certificate without key",
			config: full(func(c *Config) { c.TLS = TLS{Enabled: true, CertPath: "x"} }), want: []string{"needs both"},
		},
		{
			name:   "plain in the clear",
			config: full(func(c *Config) { c.SASL = SASL{Mechanism: "PLAIN", Username: "u", Password: "p"} }),
			want:   []string{"in the clear"},
		},
		{
			name: "plain under tls",
			config: full(func(c *Config) {
				c.SASL, c.TLS.Enabled = SASL{Mechanism: "plain", Username: "u", Password: "p"}, true
			}),
		},
		{
			name: "plain on the loopback",
			config: full(func(c *Config) {
				c.Brokers = []string{"localhost:1", "127.0.0.2:1", "[::1]:1"}
				c.SASL = SASL{Mechanism: "plain", Username: "u", Password: "p"}
			}),
		},
		{
			name: "plain with one broker elsewhere",
			config: full(func(c *Config) {
				c.Brokers = []string{"localhost:1", "broker-1:1"}
				c.SASL = SASL{Mechanism: "plain", Username: "u", Password: "p"}
			}),
			want: []string{"in the clear"},
		},
		{
			name:   "all of a login missing",
			config: full(func(c *Config) { c.SASL.Mechanism = "kerberos" }),
			want:   []string{`"KERBEROS" is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512`, "no user", "either a password or a file"},
		},
		{
			name: "two passwords",
			config: full(func(c *Config) {
				c.SASL = SASL{Mechanism: "SCRAM-SHA-256", Username: "u", Password: "p", PasswordPath: "f"}
			}),
			want: []string{"either a password or a file"},
		},
		{
			name:   "login without mechanism",
			config: full(func(c *Config) { c.SASL.Username = "u" }), want: []string{"no mechanism"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.config.Validate()
			if err == nil {
				if len(tc.want) > 0 {
					t.Fatalf("no fault, want %q", tc.want)
				}
				return
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tc.want) {
				t.Fatalf("%d faults, want %d:\n%v", len(lines), len(tc.want), err)
			}
			for i, want := range tc.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("fault %q, want it to say %q", lines[i], want)
				}
			}
		})
	}
}

func TestSoftwareVersion_IsAlwaysOneThatBrokersTake(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"": "dev", "v1.2.3": "v1.2.3", "v1.2.3+dirty": "v1.2.3-dirty", "(devel)": "devel", "...": "dev",
	} {
		if got := softwareVersion(version); got != want {
			t.Errorf("softwareVersion(%q) = %q, want %q", version, got, want)
		}
		cfg := testConfig(t, "localhost:1")
		cfg.Version = version
		testClient(t, cfg)
	}
}

func TestClientLog_LowersWhatIsSaidOnEachTransaction(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		slog slog.Level
		want kgo.LogLevel
	}{
		{slog.LevelDebug, kgo.LogLevelInfo},
		{slog.LevelInfo, kgo.LogLevelWarn},
		{slog.LevelWarn, kgo.LogLevelWarn},
		{slog.LevelError, kgo.LogLevelError},
		{slog.LevelError + 4, kgo.LogLevelNone},
	} {
		var out strings.Builder
		l := newClientLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: tc.slog})))
		if got := l.Level(); got != tc.want {
			t.Errorf("at %v the client logs at %v, want %v", tc.slog, got, tc.want)
		}
		l.Log(kgo.LogLevelInfo, "beginning transaction", "transactional_id", "x")
		if logged := out.Len() > 0; logged != (tc.slog == slog.LevelDebug) {
			t.Errorf("at %v the line of a transaction is logged: %v", tc.slog, logged)
		}
		if tc.slog == slog.LevelDebug && !strings.Contains(out.String(), "level=DEBUG") {
			t.Errorf("the line of a transaction is %q", out.String())
		}
	}
}

// newFake starts kfake and returns it with its addresses.
func newFake(tb testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	tb.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

func TestSASL_LogsInAndReadsAChangedPasswordFileAgain(t *testing.T) {
	t.Parallel()
	for mechanism, inFake := range map[string]string{
		"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "SCRAM-SHA-512": "SCRAM-SHA-512",
	} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			fake := newFake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(inFake, "worker", "right"))
			path := filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(path, []byte("wrong\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := testConfig(t, fake.ListenAddrs()...)
			cfg.SASL = SASL{Mechanism: mechanism, Username: "worker", PasswordPath: path}
			cl := testClient(t, cfg, kgo.RequestRetries(0))
			if err := cl.Ping(t.Context()); err == nil {
				t.Fatal("a wrong password logs in")
			}
			if err := os.WriteFile(path, []byte("right\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := cl.Ping(t.Context()); err != nil {
				t.Errorf("the changed password is not read: %v", err)
			}
		})
	}
}
