package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun_HelpAndUnknownFlagsStartNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		arg  string
		code int
		want string
	}{
		{"help", "-help", 0, "-warm"},
		{"unknown flag", "-nonsense", 2, "-nonsense"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code, err := run(t.Context(), []string{tc.arg}, &stdout, &stderr)
			if code != tc.code || err != nil {
				t.Errorf("status %d, %v, want %d", code, err, tc.code)
			}
			if !strings.Contains(stderr.String(), tc.want) {
				t.Errorf("stderr lacks %q:\n%s", tc.want, stderr.String())
			}
		})
	}
}
