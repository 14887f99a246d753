package app

import (
	"os"
	"strings"
	"testing"

	"github.com/lathe-run/lathe/internal/dedupe"
	"github.com/lathe-run/lathe/internal/kafka"
	"github.com/lathe-run/lathe/schemas"
)

func offlineSettings(t *testing.T, env ...string) *Settings {
	t.Helper()
	s, err := LoadOfflineSettings(t.Context(), env, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The default record limit fits topics with Kafka's default; a topic that takes less stops the start with what to set. The topic of
// turns and that of status events are not written in transactions, and do not count.
func TestRecordLimit_IsHeldAgainstEveryTopicThatIsWritten(t *testing.T) {
	t.Parallel()
	const kafkaDefault = 1048588
	for _, tc := range []struct {
		name  string
		limit string
		small func(*kafka.TopicSet) *kafka.TopicInfo
		bytes int
		fits  bool
	}{
		{"the defaults", "", func(s *kafka.TopicSet) *kafka.TopicInfo { return &s.TurnEvents }, kafkaDefault, true},
		{"a topic that takes just as much", "512KiB", func(s *kafka.TopicSet) *kafka.TopicInfo { return &s.ToolEvents }, 512 << 10, true},
		{"a topic whose limit is not known", "512KiB", func(s *kafka.TopicSet) *kafka.TopicInfo { return &s.ToolEvents }, 0, true},
		{"tool events that take a byte less", "512KiB", func(s *kafka.TopicSet) *kafka.TopicInfo { return &s.ToolEvents }, 512<<10 - 1, false},
		{"turn events", "512KiB", func(s *kafka.TopicSet) *kafka.TopicInfo { return &s.TurnEvents }, 512<<10 - 1, false},
		{"the changelog", "512KiB", func(s *kafka.TopicSet) *kafka.TopicInfo { return &s.Changelog }, 512<<10 - 1, false},
		{"dead letters", "512KiB", func(s *kafka.TopicSet) *kafka.TopicInfo { return &s.DLQ }, 512<<10 - 1, false},
		{"turns", "512KiB", func(s *kafka.TopicSet) *kafka.TopicInfo { return &s.Turns }, 1000, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var env []string
			if tc.limit != "" {
				env = []string{"LATHE_MAX_RECORD_BYTES=" + tc.limit, "LATHE_MAX_INPUT_BYTES=1KiB", "LATHE_MAX_RESULT_BYTES=1KiB"}
			}
			var topics kafka.TopicSet
			for _, info := range []*kafka.TopicInfo{&topics.Turns, &topics.ToolEvents, &topics.TurnEvents, &topics.TurnStatus, &topics.Changelog, &topics.DLQ} {
				info.MaxMessageBytes = kafkaDefault
			}
			small := tc.small(&topics)
			small.Name, small.MaxMessageBytes = "small", tc.bytes
			err := checkRecordLimit(offlineSettings(t, env...), topics)
			if (err == nil) != tc.fits {
				t.Fatalf("got %v", err)
			}
			if err != nil && (!strings.Contains(err.Error(), "LATHE_MAX_RECORD_BYTES is 524288, but topic small takes records of at most 524287 bytes (max.message.bytes)")) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestEngine_RefusesAnAgentThatNoRecordHolds(t *testing.T) {
	t.Parallel()
	h := testHandler(t, NoTelemetry())
	if err := h.engine.checkAgents(h.codec); err != nil {
		t.Errorf("a small agent: %v", err)
	}
	encoder, err := schemas.NewEncoder(schemas.EncodingJSON, schemas.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tight, err := dedupe.NewCodec(dedupe.Config{ToolEncoder: encoder, TurnEncoder: encoder, RecordBytes: 60})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.engine.checkAgents(tight); err == nil || !strings.Contains(err.Error(), "agent bench") {
		t.Errorf("got %v, want the agent that does not fit", err)
	}
}

// A producer's trace state goes into every event of the turn, so it is bounded.
func TestTraceHeaders_LeaveOutWhatIsTooLong(t *testing.T) {
	t.Parallel()
	headers := func(parent, state int) []schemas.Header {
		return []schemas.Header{{Key: "traceparent", Value: make([]byte, parent)}, {Key: "tracestate", Value: make([]byte, state)}}
	}
	for _, tc := range []struct{ parent, state, wantParent, wantState int }{
		{55, 511, 55, 511}, {128, 512, 128, 512}, {129, 512, 0, 512}, {55, 513, 55, 0}, {55, 1 << 20, 55, 0},
	} {
		if p, s := traceHeaders(headers(tc.parent, tc.state)); len(p) != tc.wantParent || len(s) != tc.wantState {
			t.Errorf("%d and %d bytes: got %d and %d, want %d and %d", tc.parent, tc.state, len(p), len(s), tc.wantParent, tc.wantState)
		}
	}
}
