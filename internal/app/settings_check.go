package app

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lathe-run/lathe/schemas"
)

// eventRoom is what an event needs beside the tool input or result it carries: ids, metadata, headers and framing.
const eventRoom = 64 * KiB

var (
	// settingName is what APP and INSTANCE_ID may be made of: both become part of group, topic and transactional ids.
	settingName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	topicName   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
)

// check looks at what a single tag cannot say. A rule over several settings is skipped when one of them is faulty already.
func (e *settingsEnv) check(s *Settings) {
	e.checkWorker(s)
	e.checkTopics(s)
	e.checkRegistry(s)
	e.checkSecurity(s)
	e.checkSizes(s)
}

// require adds a fault for the first name unless holds is true or one of the names is faulty already.
func (e *settingsEnv) require(holds bool, err error, names ...string) {
	for _, name := range names {
		holds = holds || e.faulty[name]
	}
	if !holds {
		e.fault(names[0], err)
	}
}

func (e *settingsEnv) checkWorker(s *Settings) {
	errName := errors.New("may hold letters, digits, '.', '_' and '-', starts with a letter or digit, and has at most 128 characters")
	e.require(settingName.MatchString(s.App), errName, "APP")
	e.require(s.InstanceID == "" || settingName.MatchString(s.InstanceID), errName, "INSTANCE_ID")
	bad := slices.DeleteFunc(slices.Clone(s.Brokers), isBroker)
	e.require(len(bad) == 0, e.shown("BROKERS", strings.Join(bad, ","), "is not host:port"), "BROKERS")
	e.require(isListenAddr(s.AdminAddr), e.shown("ADMIN_ADDR", s.AdminAddr, "is not [host]:port"), "ADMIN_ADDR")
	e.require(s.Capture == "io", errors.New("capture levels are not supported yet by this release: only io is"), "CAPTURE")
}

// shown makes a fault that repeats the value, unless it came from a file.
func (e *settingsEnv) shown(name, value, what string) error {
	if e.fromFile[name] != "" {
		return errors.New("the value " + what)
	}
	return fmt.Errorf("%q %s", value, what)
}

func isBroker(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return host != "" && !strings.ContainsAny(host, "/@ ") && err == nil && n > 0
}

func isListenAddr(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func (e *settingsEnv) checkTopics(s *Settings) {
	names := s.Topics()
	e.require(topicName.MatchString(s.Topic.Prefix), e.shown("TOPIC_PREFIX", s.Topic.Prefix, "cannot start the name of a topic"),
		"TOPIC_PREFIX")
	seen := map[string]string{}
	for _, t := range []struct{ setting, name string }{
		{"TOPIC_TURNS", names.Turns},
		{"TOPIC_TOOL_EVENTS", names.ToolEvents},
		{"TOPIC_TURN_EVENTS", names.TurnEvents},
		{"TOPIC_TURN_STATUS", names.TurnStatus},
		{"TOPIC_CHANGELOG", names.Changelog},
		{"TOPIC_DLQ", names.DLQ},
	} {
		// A name that was put together is as faulty as its parts, which are reported already.
		composed := e.values[t.setting] == "" && (e.faulty["TOPIC_PREFIX"] || e.faulty["APP"])
		e.require(composed || topicName.MatchString(t.name), e.shown(t.setting, t.name, "is not a name Kafka allows for a topic"),
			t.setting)
		first, double := seen[t.name]
		e.require(!double, fmt.Errorf("is the same topic as %s%s", settingsPrefix, first), t.setting)
		seen[t.name] = t.setting
	}
}

func (e *settingsEnv) checkRegistry(s *Settings) {
	r := s.Registry
	enc := s.Encoding.Resolved()
	for _, used := range []struct {
		setting  string
		encoding schemas.Encoding
	}{
		{"ENCODING_TURNS", enc.Turns},
		{"ENCODING_TOOL_EVENTS", enc.ToolEvents},
		{"ENCODING_TURN_EVENTS", enc.TurnEvents},
		{"ENCODING_TURN_STATUS", enc.TurnStatus},
	} {
		e.require(used.encoding != schemas.EncodingAvro || r.URL != "",
			fmt.Errorf("is required by the encoding avro (%sENCODING or %[1]s%s)", settingsPrefix, used.setting),
			"SCHEMA_REGISTRY_URL", "ENCODING", used.setting)
	}
	// The URL is not repeated: someone may have put a password into it.
	e.require(r.URL == "" || isPlainURL(r.URL), errors.New(
		"must be an http or https URL without user and password: those have settings of their own"), "SCHEMA_REGISTRY_URL")
	e.require((r.Username == "") == (r.Password == ""), errors.New(
		"goes with LATHE_SCHEMA_REGISTRY_PASSWORD: set both or neither"), "SCHEMA_REGISTRY_USERNAME", "SCHEMA_REGISTRY_PASSWORD")
	e.require(r.Token == "" || r.Username == "", errors.New(
		"cannot be used with LATHE_SCHEMA_REGISTRY_USERNAME: keep one"), "SCHEMA_REGISTRY_TOKEN", "SCHEMA_REGISTRY_USERNAME")
}

func isPlainURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

func (e *settingsEnv) checkSecurity(s *Settings) {
	errTLS := errors.New("has no effect without LATHE_TLS_ENABLED=true")
	for name, set := range map[string]bool{
		"TLS_CA_PATH":              s.TLS.CAPath != "",
		"TLS_CERT_PATH":            s.TLS.CertPath != "",
		"TLS_KEY_PATH":             s.TLS.KeyPath != "",
		"TLS_SERVER_NAME":          s.TLS.ServerName != "",
		"TLS_INSECURE_SKIP_VERIFY": s.TLS.InsecureSkipVerify,
	} {
		e.require(!set || s.TLS.Enabled, errTLS, name, "TLS_ENABLED")
	}
	e.require((s.TLS.CertPath == "") == (s.TLS.KeyPath == ""), errors.New(
		"goes with LATHE_TLS_KEY_PATH: set both or neither"), "TLS_CERT_PATH", "TLS_KEY_PATH")
	login := s.SASL.Mechanism != ""
	e.require(!login || s.SASL.Username != "", errors.New("is required by LATHE_SASL_MECHANISM"), "SASL_USERNAME", "SASL_MECHANISM")
	e.require(!login || s.SASL.Password != "", errors.New("is required by LATHE_SASL_MECHANISM"), "SASL_PASSWORD", "SASL_MECHANISM")
	e.require(login || s.SASL.Username == "" && s.SASL.Password == "", errors.New(
		"is required by LATHE_SASL_USERNAME and LATHE_SASL_PASSWORD"), "SASL_MECHANISM")
	e.require(s.SASL.Mechanism != "PLAIN" || s.TLS.Enabled || onLoopback(s.Brokers), errors.New(
		"PLAIN sends the password in the clear: set LATHE_TLS_ENABLED=true or use SCRAM-SHA-512"), "SASL_MECHANISM", "TLS_ENABLED")
}

// onLoopback reports whether no connection to the brokers leaves this machine.
func onLoopback(brokers []string) bool {
	return !slices.ContainsFunc(brokers, func(broker string) bool {
		host, _, err := net.SplitHostPort(broker)
		return err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback()
	})
}

func (e *settingsEnv) checkSizes(s *Settings) {
	l := s.Limits
	errRoom := fmt.Errorf("must be at least %s below LATHE_MAX_RECORD_BYTES, for the rest of the event", eventRoom)
	e.require(l.InputBytes <= l.RecordBytes-eventRoom, errRoom, "MAX_INPUT_BYTES", "MAX_RECORD_BYTES")
	e.require(l.ResultBytes <= l.RecordBytes-eventRoom, errRoom, "MAX_RESULT_BYTES", "MAX_RECORD_BYTES")
	e.require(s.MaxBufferedBytes >= 4*l.RecordBytes, errors.New(
		"must hold at least 4 records of LATHE_MAX_RECORD_BYTES"), "MAX_BUFFERED_BYTES", "MAX_RECORD_BYTES")
}
