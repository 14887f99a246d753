package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-run/lathe/schemas"
)

func noFiles(path string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// settingsOf loads settings from the given variables beside LATHE_BROKERS.
func settingsOf(t *testing.T, vars ...string) *Settings {
	t.Helper()
	s, err := LoadSettings(t.Context(), append([]string{"LATHE_BROKERS=localhost:9092", "PATH=/bin"}, vars...), noFiles)
	if err != nil {
		t.Fatalf("LoadSettings(%q): %v", vars, err)
	}
	return s
}

func TestSettings_HaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	want := &Settings{
		App: "lathe", Brokers: []string{"localhost:9092"}, Manifest: "lathe.yaml", DataDir: "./data", AdminAddr: ":9090",
		LogLevel: "info", Capture: "io", GroupProtocol: "classic", SessionTimeout: 45 * time.Second,
		MaxInFlight: 1024, MaxInFlightPerPartition: 256, MaxBufferedBytes: 256 << 20,
		TransactionTimeout: 15 * time.Second, DrainBudget: 20 * time.Second,
		DedupeRetention: 15 * 24 * time.Hour, SessionRetention: 30 * 24 * time.Hour, SessionTurns: 1000, SessionBytes: 8 << 20, StateFormat: 1,
		Topic:    TopicSettings{Prefix: "lathe.", Create: true, TurnsPartitioner: "murmur2"},
		Encoding: EncodingSettings{Default: schemas.EncodingJSON},
		Registry: RegistrySettings{Timeout: 5 * time.Second},
		Limits: LimitsSettings{
			RecordBytes: 1 << 20, InputBytes: 512 << 10, ResultBytes: 512 << 10, JSONDepth: 64,
			AvroValues: 131072, SchemaBytes: 256 << 10,
		},
		Turn: TurnLimits{
			Steps: 16, Calls: 64, Parallel: 8, ConsecutiveFailures: 3, Duration: 10 * time.Minute, ContextBytes: 2 << 20,
		},
	}
	if diff := cmp.Diff(want, settingsOf(t)); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestSettings_AreReadFromTheEnvironment(t *testing.T) {
	t.Parallel()
	s := settingsOf(
		t, "LATHE_APP=orders", "LATHE_BROKERS=a:9092, b:9093,[::1]:9094", "LATHE_DEDUPE_RETENTION=1d12h", "LATHE_MAX_BUFFERED_BYTES=1 GiB",
		"LATHE_MAX_RECORD_BYTES=2097152", "LATHE_CREATE_TOPICS=false", "LATHE_TURN_STEPS=4", "LATHE_TURN_CONTEXT_BYTES=64KiB",
		"LATHE_LOG_LEVEL=debug", "LATHE_TOPIC_PREFIX=acme.", "LATHE_TOPIC_DLQ=dead", "LATHE_ENCODING=avro-single",
		"LATHE_ENCODING_TURN_STATUS=json", "LATHE_INSTANCE_ID=", "LATHE_MAX_IN_FLIGHT=",
		// The last one counts, as it does for a child process.
		"LATHE_SESSION_TIMEOUT=1m", "LATHE_SESSION_TIMEOUT=6s",
	)
	if diff := cmp.Diff([]string{"a:9092", "b:9093", "[::1]:9094"}, s.Brokers); diff != "" {
		t.Errorf("brokers (-want +got):\n%s", diff)
	}
	got := []any{
		s.DedupeRetention, s.MaxBufferedBytes, s.Limits.RecordBytes, s.Topic.Create, s.Turn.Steps, s.Turn.ContextBytes,
		s.Level(), s.InstanceID, s.MaxInFlight, s.SessionTimeout,
	}
	want := []any{36 * time.Hour, GiB, 2 * MiB, false, 4, 64 * KiB, slog.LevelDebug, "", 1024, 6 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	wantTopics := TopicNames{"acme.turns", "acme.tool-events", "acme.turn-events", "acme.turn-status", "acme.orders.changelog", "dead"}
	if diff := cmp.Diff(wantTopics, s.Topics()); diff != "" {
		t.Errorf("topics (-want +got):\n%s", diff)
	}
	enc := s.Encoding.Resolved()
	if enc.ToolEvents != schemas.EncodingAvroSingle || enc.TurnStatus != schemas.EncodingJSON {
		t.Errorf("encodings = %+v", enc)
	}
}

func TestSettings_AreReadFromFiles(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{
		"/run/password": []byte("hunter2\r\n"), "/run/two-lines": []byte("a\n\n"), "/run/empty": []byte("\n"),
		"/run/big": bytes.Repeat([]byte("x"), maxSettingFile+1), "/run/shadow": []byte("root:hunter2"),
	}
	read := func(path string) ([]byte, error) {
		if b, ok := files[path]; ok {
			return b, nil
		}
		return noFiles(path)
	}
	login := []string{"LATHE_BROKERS=b:1", "LATHE_SASL_MECHANISM=SCRAM-SHA-512", "LATHE_SASL_USERNAME=me"}
	for _, tc := range []struct{ name, vars, password, fault string }{
		{"one trailing newline is cut", "LATHE_SASL_PASSWORD_FILE=/run/password", "hunter2", ""},
		{"only one is cut", "LATHE_SASL_PASSWORD_FILE=/run/two-lines", "a\n", ""},
		{"an empty variant is unset", "LATHE_SASL_PASSWORD=x LATHE_SASL_PASSWORD_FILE=", "x", ""},
		{
			"both are refused", "LATHE_SASL_PASSWORD=x LATHE_SASL_PASSWORD_FILE=/run/password", "",
			"LATHE_SASL_PASSWORD: is set, and so is LATHE_SASL_PASSWORD_FILE: keep one",
		},
		{
			"a missing file is refused", "LATHE_SASL_PASSWORD_FILE=/run/none", "",
			"LATHE_SASL_PASSWORD_FILE: read the value: open /run/none: file does not exist",
		},
		{
			"an empty file is refused", "LATHE_SASL_PASSWORD_FILE=/run/empty", "",
			"LATHE_SASL_PASSWORD: LATHE_SASL_PASSWORD_FILE names an empty file",
		},
		{
			"a large file is refused", "LATHE_SASL_PASSWORD_FILE=/run/big", "",
			"LATHE_SASL_PASSWORD: LATHE_SASL_PASSWORD_FILE names a file of 65537 bytes, more than 65536",
		},
		{
			"a misfit from a file is not shown", "LATHE_SASL_PASSWORD=x LATHE_MAX_IN_FLIGHT_FILE=/run/shadow", "",
			"LATHE_MAX_IN_FLIGHT: the value is not a whole number",
		},
		{
			"a wrong choice from a file is not shown", "LATHE_SASL_PASSWORD=x LATHE_ENCODING_FILE=/run/shadow", "",
			"LATHE_ENCODING: the value is not one of `json`, `avro`, `avro-single`",
		},
		{
			"a bad broker from a file is not shown", "LATHE_SASL_PASSWORD=x LATHE_BROKERS= LATHE_BROKERS_FILE=/run/shadow", "",
			"LATHE_BROKERS: the value is not host:port",
		},
		{
			"a path has no variant", "LATHE_SASL_PASSWORD=x LATHE_TLS_CA_PATH_FILE=/run/password", "",
			"LATHE_TLS_CA_PATH_FILE: is no setting: LATHE_TLS_CA_PATH is a path itself",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := LoadSettings(t.Context(), append(login, strings.Fields(tc.vars)...), read)
			if got := errText(err); got != tc.fault {
				t.Fatalf("fault = %q, want %q", got, tc.fault)
			}
			if err != nil {
				return
			}
			if got := s.SASL.Password.Reveal(); got != tc.password {
				t.Errorf("password = %q, want %q", got, tc.password)
			}
			_, path, _ := strings.Cut(tc.vars, "_FILE=")
			if s.SASL.PasswordPath != path {
				t.Errorf("path of the password = %q, want %q", s.SASL.PasswordPath, path)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSettings_ReportAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	s, err := LoadSettings(t.Context(), []string{
		"LATHE_MAX_IN_FLIGHT=many", "LATHE_MAX_RECORD_BYTES=1MB", "LATHE_DRAIN_BUDGET=20", "LATHE_CREATE_TOPICS=maybe",
		"LATHE_GROUP_PROTOCOL=eager", "LATHE_TURN_STEPS=0", "LATHE_TOPIC_TURNS=a/b", "LATHE_BROKER=x:1", "LATHE_APP=my app",
		"LATHE_MAX_JSON_DEPTH=5000", "LATHE_TOPIC_DLQ=lathe.tool-events",
	}, noFiles)
	want := []string{
		`LATHE_APP: may hold letters, digits, '.', '_' and '-', starts with a letter or digit, and has at most 128 characters`,
		`LATHE_BROKER: is no setting; the nearest is LATHE_BROKERS`,
		`LATHE_BROKERS: is required: seed brokers, host:port separated by commas`,
		`LATHE_CREATE_TOPICS: "maybe" is not a boolean`,
		`LATHE_DRAIN_BUDGET: "20" is not a duration such as 500ms, 30s, 10m or 15d`,
		`LATHE_GROUP_PROTOCOL: "eager" is not one of classic, consumer`,
		`LATHE_MAX_IN_FLIGHT: "many" is not a whole number`,
		`LATHE_MAX_JSON_DEPTH: 5000 is more than 1000`,
		`LATHE_MAX_RECORD_BYTES: "1MB" is not a size such as 512KiB, 1MiB or 2GiB`,
		`LATHE_TOPIC_DLQ: is the same topic as LATHE_TOPIC_TOOL_EVENTS`,
		`LATHE_TOPIC_TURNS: "a/b" is not a name Kafka allows for a topic`,
		`LATHE_TURN_STEPS: 0 is less than 1`,
	}
	if diff := cmp.Diff(want, strings.Split(errText(err), "\n")); diff != "" || s != nil {
		t.Errorf("settings %v, faults (-want +got):\n%s", s, diff)
	}
}

func TestSettings_AgreeWithEachOther(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, vars, fault string }{
		{
			"avro needs a registry", "LATHE_ENCODING_TURN_EVENTS=avro",
			"LATHE_SCHEMA_REGISTRY_URL: is required by the encoding avro (LATHE_ENCODING or LATHE_ENCODING_TURN_EVENTS)",
		},
		{"avro with a registry", "LATHE_ENCODING=avro LATHE_SCHEMA_REGISTRY_URL=https://registry:8081", ""},
		{
			"no password in a URL", "LATHE_SCHEMA_REGISTRY_URL=https://me:hunter2@registry",
			"LATHE_SCHEMA_REGISTRY_URL: must be an http or https URL without user and password: those have settings of their own",
		},
		{
			"a registry user needs a password", "LATHE_SCHEMA_REGISTRY_USERNAME=me",
			"LATHE_SCHEMA_REGISTRY_USERNAME: goes with LATHE_SCHEMA_REGISTRY_PASSWORD: set both or neither",
		},
		{
			"one way to log in at a registry", "LATHE_SCHEMA_REGISTRY_USERNAME=me LATHE_SCHEMA_REGISTRY_PASSWORD=p LATHE_SCHEMA_REGISTRY_TOKEN=t",
			"LATHE_SCHEMA_REGISTRY_TOKEN: cannot be used with LATHE_SCHEMA_REGISTRY_USERNAME: keep one",
		},
		{"TLS details need TLS", "LATHE_TLS_CA_PATH=ca.crt", "LATHE_TLS_CA_PATH: has no effect without LATHE_TLS_ENABLED=true"},
		{
			"a certificate needs its key", "LATHE_TLS_ENABLED=true LATHE_TLS_CERT_PATH=tls.crt",
			"LATHE_TLS_CERT_PATH: goes with LATHE_TLS_KEY_PATH: set both or neither",
		},
		{
			"PLAIN needs TLS", "LATHE_BROKERS=localhost:9092,kafka:9092 LATHE_SASL_MECHANISM=PLAIN LATHE_SASL_USERNAME=me LATHE_SASL_PASSWORD=p",
			"LATHE_SASL_MECHANISM: PLAIN sends the password in the clear: set LATHE_TLS_ENABLED=true or use SCRAM-SHA-512",
		},
		{"PLAIN on this machine", "LATHE_BROKERS=localhost:9092,[::1]:9093 LATHE_SASL_MECHANISM=PLAIN LATHE_SASL_USERNAME=me LATHE_SASL_PASSWORD=p", ""},
		{"PLAIN with TLS", "LATHE_BROKERS=kafka:9092 LATHE_SASL_MECHANISM=PLAIN LATHE_SASL_USERNAME=me LATHE_SASL_PASSWORD=p LATHE_TLS_ENABLED=true", ""},
		{
			"a mechanism needs user and password", "LATHE_SASL_MECHANISM=SCRAM-SHA-256",
			"LATHE_SASL_PASSWORD: is required by LATHE_SASL_MECHANISM\nLATHE_SASL_USERNAME: is required by LATHE_SASL_MECHANISM",
		},
		{
			"a password needs a mechanism", "LATHE_SASL_PASSWORD=p",
			"LATHE_SASL_MECHANISM: is required by LATHE_SASL_USERNAME and LATHE_SASL_PASSWORD",
		},
		{"a prefix is part of topic names", "LATHE_TOPIC_PREFIX=a/", `LATHE_TOPIC_PREFIX: "a/" cannot start the name of a topic`},
		{
			"a changelog name of legal length", "LATHE_TOPIC_PREFIX=" + strings.Repeat("x", 240),
			`LATHE_TOPIC_CHANGELOG: "` + strings.Repeat("x", 240) + `lathe.changelog" is not a name Kafka allows for a topic` + "\n" +
				`LATHE_TOPIC_TOOL_EVENTS: "` + strings.Repeat("x", 240) + `tool-events" is not a name Kafka allows for a topic` + "\n" +
				`LATHE_TOPIC_TURN_EVENTS: "` + strings.Repeat("x", 240) + `turn-events" is not a name Kafka allows for a topic` + "\n" +
				`LATHE_TOPIC_TURN_STATUS: "` + strings.Repeat("x", 240) + `turn-status" is not a name Kafka allows for a topic`,
		},
		{
			"a result fits its record", "LATHE_MAX_RESULT_BYTES=1MiB",
			"LATHE_MAX_RESULT_BYTES: must be at least 64KiB below LATHE_MAX_RECORD_BYTES, for the rest of the event",
		},
		{
			"the buffer holds records", "LATHE_MAX_RECORD_BYTES=64MiB LATHE_MAX_BUFFERED_BYTES=255MiB",
			"LATHE_MAX_BUFFERED_BYTES: must hold at least 4 records of LATHE_MAX_RECORD_BYTES",
		},
		{
			"a bad number does not cause a second fault", "LATHE_MAX_RECORD_BYTES=x",
			`LATHE_MAX_RECORD_BYTES: "x" is not a size such as 512KiB, 1MiB or 2GiB`,
		},
		{"a broker without a port", "LATHE_BROKERS=kafka", `LATHE_BROKERS: "kafka" is not host:port`},
		{"every bad broker", "LATHE_BROKERS=kafka:0,ok:9092,https://x", `LATHE_BROKERS: "kafka:0,https://x" is not host:port`},
		{"an empty broker", "LATHE_BROKERS=kafka:9092,", `LATHE_BROKERS: "" is not host:port`},
		{"an address to listen on", "LATHE_ADMIN_ADDR=9090", `LATHE_ADMIN_ADDR: "9090" is not [host]:port`},
		{
			"capture levels come later", "LATHE_CAPTURE=none",
			"LATHE_CAPTURE: capture levels are not supported yet by this release: only io is",
		},
		{"what is set to its default", "LATHE_CAPTURE=io LATHE_SESSION_RETENTION=720h", ""},
		{"retentions of their own", "LATHE_SESSION_RETENTION=1d LATHE_DEDUPE_RETENTION=20d LATHE_SESSION_TURNS=5 LATHE_SESSION_BYTES=1MiB", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			vars := append([]string{"LATHE_BROKERS=localhost:9092"}, strings.Fields(tc.vars)...)
			_, err := LoadSettings(t.Context(), vars, noFiles)
			if got := errText(err); got != tc.fault {
				t.Errorf("fault = %q\nwant    %q", got, tc.fault)
			}
		})
	}
}

func TestSettings_RefuseUnknownNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, variable, fault string }{
		{"a misspelt one", "LATHE_TOPIC_PERFIX=x", "LATHE_TOPIC_PERFIX: is no setting; the nearest is LATHE_TOPIC_PREFIX"},
		{"a misspelt one that is empty", "LATHE_DATADIR=", "LATHE_DATADIR: is no setting; the nearest is LATHE_DATA_DIR"},
		{"a misspelt file variant", "LATHE_SASL_PASWORD_FILE=x", "LATHE_SASL_PASWORD_FILE: is no setting; the nearest is LATHE_SASL_PASSWORD_FILE"},
		{"the bare prefix", "LATHE_=x", "LATHE_: is no setting; docs/configuration.md lists them"},
		{
			"one like nothing", "LATHE_QQQQQQQQQQQQQQQQQQQQQQQQQQQQ=x",
			"LATHE_QQQQQQQQQQQQQQQQQQQQQQQQQQQQ: is no setting; docs/configuration.md lists them",
		},
		{"an encoding of what has none", "LATHE_ENCODING_DLQ=json", "LATHE_ENCODING_DLQ: is no setting; the nearest is LATHE_ENCODING"},
		{"other programs'", "LATHED_X=1", ""},
		{"the tests' own", "LATHE_TEST_BROKERS=x", ""},
		{"service host", "LATHE_SERVICE_HOST=10.0.0.1", ""},
		{"service port", "LATHE_SERVICE_PORT=80", ""},
		{"named service port", "LATHE_SERVICE_PORT_HTTP=80", ""},
		{"port", "LATHE_PORT=tcp://10.0.0.1:80", ""},
		{"port with protocol", "LATHE_PORT_80_TCP=tcp://10.0.0.1:80", ""},
		{"port with protocol and ending", "LATHE_PORT_80_UDP_ADDR=10.0.0.1", ""},
		{"SCTP port", "LATHE_PORT_80_SCTP_PROTO=sctp", ""},
		{"another service's host", "LATHE_ADMIN_UI_SERVICE_HOST=10.0.0.1", ""},
		{"another service's port", "LATHE_ADMIN_UI_PORT_9090_TCP_PORT=9090", ""},
		{"no service's", "LATHE_PORTS=1", "LATHE_PORTS: is no setting; docs/configuration.md lists them"},
		{"not quite a service's", "LATHE_PORT_80_HTTP=1", "LATHE_PORT_80_HTTP: is no setting; docs/configuration.md lists them"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := LoadSettings(t.Context(), []string{"LATHE_BROKERS=localhost:9092", tc.variable}, noFiles)
			if got := errText(err); got != tc.fault {
				t.Errorf("fault = %q\nwant    %q", got, tc.fault)
			}
		})
	}
}

func TestSettings_OfflineNeedNoBrokers(t *testing.T) {
	t.Parallel()
	s, err := LoadOfflineSettings(t.Context(), []string{"LATHE_APP=orders"}, noFiles)
	if err != nil || s.App != "orders" {
		t.Fatalf("LoadOfflineSettings = %+v, %v", s, err)
	}
	if _, err := LoadOfflineSettings(t.Context(), []string{"LATHE_BROKERS=:1"}, noFiles); err == nil {
		t.Error("brokers that are set are not checked")
	}
}

// Every secret goes through a fault and through each way of printing, and shows in none.
func TestSettings_NeverShowASecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	vars := []string{"LATHE_BROKERS=localhost:9092", "LATHE_MAX_IN_FLIGHT=x"}
	for _, f := range settingFields(reflect.TypeFor[Settings]()) {
		if f.typ == reflect.TypeFor[Secret]() {
			vars = append(vars, settingsPrefix+f.env+"="+secret)
		}
	}
	if len(vars) < 5 {
		t.Fatalf("only %d variables: are the secrets no longer of type Secret?", len(vars))
	}
	_, err := LoadSettings(t.Context(), vars, noFiles)
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("fault = %v", err)
	}

	s := Settings{SASL: SASLSettings{Password: secret}}
	asJSON, err := json.Marshal(s) //nolint:musttag // Nobody writes it as JSON; that must not show a secret either.
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).InfoContext(t.Context(), "settings",
		slog.Any("password", s.SASL.Password), slog.Any("all", s))
	for _, printed := range []string{
		fmt.Sprint(s), fmt.Sprintf("%+v %#v %q %x %d %s", s, s, s.SASL.Password, s.SASL.Password, s.SASL.Password, &s.SASL), string(asJSON), log.String(),
		errors.New(s.SASL.Password.String()).Error(),
	} {
		if strings.Contains(printed, secret) || strings.Contains(printed, fmt.Sprintf("%x", secret)) || !strings.Contains(printed, redacted) {
			t.Errorf("printed as %s", printed)
		}
	}
	if s.SASL.Password.Reveal() != secret || Secret("").String() != "" {
		t.Error("Reveal or the empty secret is wrong")
	}
}
