//go:build kafka

package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestRun_GivesTheCommandABrokerAndReturnsItsStatus(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code, err := run(t.Context(), []string{
		"-warm", "1s", "sh", "-c",
		`echo "$LATHE_BROKERS|$LATHE_TEST_BROKERS|$LATHE_TEST_BROKER_PIDS"; kill -0 "$LATHE_TEST_BROKER_PIDS" && exit 7`,
	}, &stdout, &stderr)
	if code != 7 || err != nil {
		t.Errorf("status %d, %v, want 7\n%s", code, err, stderr.String())
	}
	want := regexp.MustCompile(`^(127\.0\.0\.1:\d+)\|(127\.0\.0\.1:\d+)\|(\d+)\n$`)
	found := want.FindStringSubmatch(stdout.String())
	if found == nil || found[1] != found[2] {
		t.Fatalf("stdout is %q, want %s", stdout.String(), want)
	}
	if _, err := os.Stat("/proc/" + found[3]); err == nil {
		t.Errorf("the broker %s still runs", found[3])
	}
}

func TestRun_EndsOnASignalWithTheCommandStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	started := &lineWriter{line: make(chan string, 1)}
	var stderr bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = run(ctx, []string{"sh", "-c", "echo $$; exec sleep 1000"}, started, &stderr)
	}()
	pid := strings.TrimSpace(<-started.line)
	cancel() // as the signal does
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if _, err := os.Stat("/proc/" + pid); err == nil {
		t.Errorf("the command %s still runs", pid)
	}
}

// lineWriter hands over the first thing that is written to it.
type lineWriter struct{ line chan string }

func (w *lineWriter) Write(p []byte) (int, error) {
	w.line <- string(p)
	return len(p), nil
}
