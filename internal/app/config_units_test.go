package app

import (
	"testing"
	"time"
)

func TestParseDuration_KnowsDays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"15d", 15 * 24 * time.Hour, true},
		{"1d12h30m", 36*time.Hour + 30*time.Minute, true},
		{"0.5d", 12 * time.Hour, true},
		{"0d", 0, true},
		{"10m", 10 * time.Minute, true},
		{"1h2m3s4ms5us6ns", time.Hour + 2*time.Minute + 3*time.Second + 4*time.Millisecond + 5*time.Microsecond + 6, true},
		{"-1s", -time.Second, true},
		{"106751d", 106751 * 24 * time.Hour, true},
		{"106752d", 0, false},
		{"106751d24h", 0, false},
		{"1d-1h", 0, false},
		{"1d+1h", 0, false},
		{"1h2d", 0, false},
		{"1d2d", 0, false},
		{"d", 0, false},
		{"-1d", 0, false},
		{"10", 0, false},
		{"", 0, false},
		{"ten", 0, false},
	} {
		t.Run(tc.text, func(t *testing.T) {
			t.Parallel()
			got, err := parseDuration(tc.text)
			if got != tc.want || (err == nil) != tc.ok {
				t.Errorf("parseDuration(%q) = %v, %v; want %v", tc.text, got, err, tc.want)
			}
		})
	}
}

func TestByteSize_ReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text  string
		want  ByteSize
		print string
	}{
		{"0", 0, "0B"},
		{"1023", 1023, "1023B"},
		{"1KiB", 1024, "1KiB"},
		{"512 MiB", 512 << 20, "512MiB"},
		{"1536KiB", 1536 << 10, "1536KiB"},
		{"2048MiB", 2 << 30, "2GiB"},
		{"7B", 7, "7B"},
		{"8589934591GiB", 8589934591 << 30, "8589934591GiB"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			t.Parallel()
			var got, again ByteSize
			if err := got.UnmarshalText([]byte(tc.text)); err != nil || got != tc.want || got.String() != tc.print {
				t.Errorf("%q = %d (%s), %v; want %d (%s)", tc.text, got, got, err, tc.want, tc.print)
			}
			if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
				t.Errorf("%s read again = %d, %v", got, again, err)
			}
		})
	}
}

func TestByteSize_RefusesWhatIsNoSize(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "KiB", "1KB", "1MB", "1mib", "-1", "1.5MiB", "8589934592GiB", "9223372036854775808", "1MiBB", "0x10", "1_000"} {
		var got ByteSize
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q = %d", text, got)
		}
	}
}
