package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/llm"
)

type fixedHealth consumer.Status

func (h fixedHealth) Status() consumer.Status { return consumer.Status(h) }

type fixedModels []llm.ModelStatus

func (m fixedModels) Status() []llm.ModelStatus { return m }

func TestAdmin_AnswersProbesByWhatTheConsumerSays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, path string
		status     consumer.Status
		code       int
		body       string
	}{
		{"alive", "/livez", consumer.Status{Live: true}, http.StatusOK, "ok"},
		{"stuck", "/livez", consumer.Status{LiveReason: "no cycle succeeds"}, http.StatusServiceUnavailable, "no cycle succeeds"},
		{"ready", "/readyz", consumer.Status{Ready: true}, http.StatusOK, "ok"},
		{"draining", "/readyz", consumer.Status{ReadyReason: "it drains"}, http.StatusServiceUnavailable, "it drains"},
		{"verbose", "/readyz?verbose", consumer.Status{ReadyReason: "it drains"}, http.StatusServiceUnavailable, `"ready_reason": "it drains"`},
		{"restoring", "/readyz?verbose", consumer.Status{Partitions: []consumer.PartitionStatus{{
			Partition: 3, State: "restoring", Restore: &consumer.RestoreStatus{Position: 25, Target: 100, Percent: 25, Records: 20},
		}}}, http.StatusServiceUnavailable, `"percent": 25`},
		{"a model that is down", "/readyz?verbose", consumer.Status{Ready: true}, http.StatusOK, `"cause": "status 503"`},
		{"metrics", "/metrics", consumer.Status{}, http.StatusOK, ""},
		{"unknown", "/", consumer.Status{}, http.StatusNotFound, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, err := listenAdmin(t.Context(), "127.0.0.1:0", fixedHealth(tc.status), fixedModels{{Model: "main", Down: true, Cause: "status 503"}}, NoTelemetry())
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- a.serve(ctx) }()
			resp, err := http.Get("http://" + a.addr() + tc.path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tc.code || !strings.Contains(string(body), tc.body) {
				t.Errorf("status %d, body %q; want %d and %q", resp.StatusCode, body, tc.code, tc.body)
			}
			resp.Body.Close()
			stop()
			if err := <-served; err != nil {
				t.Errorf("serve: %v", err)
			}
		})
	}
}

// TestAdmin_AnOpenConnectionDoesNotHoldUpTheEnd: a probe that connects as the worker ends, and says nothing, made a clean drain look
// like a failure.
func TestAdmin_AnOpenConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	a, err := listenAdmin(t.Context(), "127.0.0.1:0", fixedHealth(consumer.Status{}), fixedModels(nil), NoTelemetry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- a.serve(ctx) }()
	conn, err := net.Dial("tcp", a.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	resp, err := http.Get("http://" + a.addr() + "/livez") // So the connection before it was accepted.
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	began := time.Now()
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if took := time.Since(began); took > 3*closeTimeout {
		t.Errorf("it took %s", took)
	}
}
