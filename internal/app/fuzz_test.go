package app

import (
	"os"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/lathe-run/lathe/schemas"
)

// FuzzTraceHeaders: a trace context that a producer sent is one that can be sent on, or none.
func FuzzTraceHeaders(f *testing.F) {
	f.Add("traceparent", []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), []byte("a=b,c=d"))
	f.Add("traceparent", []byte("00-00000000000000000000000000000000-0000000000000000-00"), []byte(""))
	f.Add("traceparent", []byte("ff-x"), []byte("\xff=,,="))
	f.Add("Traceparent", []byte("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"), []byte("=\x00"))
	f.Fuzz(func(t *testing.T, key string, parent, state []byte) {
		p, s := traceHeaders([]schemas.Header{{Key: key, Value: parent}, {Key: "tracestate", Value: state}})
		ctx := withParent(t.Context(), p, s)
		again, stateAgain := traceOf(ctx)
		if !trace.SpanContextFromContext(ctx).IsValid() {
			if again != "" {
				t.Errorf("%q is no parent, yet %q is sent on", p, again)
			}
			return
		}
		if p2, s2 := traceOf(withParent(t.Context(), again, stateAgain)); p2 != again || s2 != stateAgain {
			t.Errorf("%q %q becomes %q %q and then %q %q", p, s, again, stateAgain, p2, s2)
		}
	})
}

// FuzzSettings: any value of any setting is taken or refused, and a secret is never shown.
func FuzzSettings(f *testing.F) {
	f.Add("LATHE_SESSION_TIMEOUT", "1d12h")
	f.Add("LATHE_MAX_BUFFERED_BYTES", "18446744073709551615MiB")
	f.Add("LATHE_BROKERS", "a:1,,b:2")
	f.Add("LATHE_TOPIC_TURNS", "..")
	f.Add("LATHE_APP", "a/b")
	f.Add("LATHE_SASL_PASSWORD", "secret")
	f.Add("LATHE_TURN_STEPS", "-1")
	f.Add("LATHE_ENCODING", "avro")
	f.Fuzz(func(t *testing.T, name, value string) {
		s, err := LoadOfflineSettings(t.Context(), []string{name + "=" + value}, os.ReadFile)
		if (s == nil) != (err != nil) {
			t.Errorf("settings %v and error %v", s, err)
		}
		if err != nil {
			return
		}
		if again := s.SessionTimeout; again <= 0 {
			t.Errorf("a session timeout of %s was taken", again)
		}
	})
}

// FuzzByteSize: what is written is read again.
func FuzzByteSize(f *testing.F) {
	for _, text := range []string{"0", "1", "64KiB", "1MiB", "3GiB", "9223372036854775807", "1.5MiB", "-1", "1 MiB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b, again ByteSize
		if b.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Errorf("%q is %d, written as %q, read as %d, %v", text, b, b.String(), again, err)
		}
	})
}
