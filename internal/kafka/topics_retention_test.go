package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// A record may be read again for as long as the topic keeps it, so a turn must be remembered for at least that long. The default of
// 15 days is enough for a topic with Kafka's defaults, which keeps up to 14.
func TestEnsureTopics_RefusesATopicThatKeepsTurnsForLongerThanTheyAreRemembered(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	const day = 24 * time.Hour
	for name, tc := range map[string]struct {
		configs    map[string]string
		remembered time.Duration
		infinite   bool
		fault      string
	}{
		"defaults":                  {remembered: 15 * day},
		"exactly as long":           {remembered: 14 * day},
		"not checked":               {configs: map[string]string{"retention.ms": "-1"}},
		"a moment too short":        {remembered: 14*day - time.Millisecond, fault: "keeps records for up to 14d (retention.ms 7d + segment.ms 7d), but an ended turn is remembered for 335h59m59.999s: one that is read again after that would run again. Set LATHE_DEDUPE_RETENTION=14d or more"},
		"a segment that stays open": {configs: map[string]string{"retention.ms": "3600000", "segment.ms": "1382400000"}, remembered: 15 * day, fault: "keeps records for up to 385h0m0s (retention.ms 1h0m0s + segment.ms 16d)"},
		"for ever":                  {configs: map[string]string{"retention.ms": "-1"}, remembered: 15 * day, fault: "set LATHE_ALLOW_INFINITE_TURNS_RETENTION=true"},
		"a segment for ever":        {configs: map[string]string{"segment.ms": "9223372036854775807"}, remembered: 15 * day, fault: "keeps records for ever (retention.ms 7d, segment.ms for ever)"},
		"nearly for ever":           {configs: map[string]string{"retention.ms": "9223372036854", "segment.ms": "9223372036854"}, remembered: 15 * day, fault: "keeps records for ever"},
		"for ever, and told so":     {configs: map[string]string{"retention.ms": "-1"}, remembered: 15 * day, infinite: true},
		"too long is no less so":    {remembered: day, infinite: true, fault: "LATHE_DEDUPE_RETENTION=14d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			x := newTopicTest(t, topicCluster{addrs: c.ListenAddrs(), names: func(testing.TB) string { return prefix }})
			x.topics.DedupeRetention, x.topics.AllowInfiniteTurns = tc.remembered, tc.infinite
			x.create(x.topics.Turns, 1, tc.configs)
			_, err := x.ensure()
			if tc.fault == "" && err != nil || tc.fault != "" && !strings.Contains(errorText(err), tc.fault) {
				t.Errorf("ensure gives %v\nwant %q", err, tc.fault)
			}
			if warned := strings.Contains(x.log.String(), "keeps records for ever"); warned != (tc.infinite && tc.fault == "") {
				t.Errorf("warned: %t", warned)
			}
		})
	}
}
