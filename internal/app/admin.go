package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lathe-run/lathe/internal/consumer"
	"github.com/lathe-run/lathe/internal/llm"
)

// admin serves the probes and the metrics.
//
//	/livez    the worker makes progress; not whether brokers, models or tools do
//	/readyz   it is in its group, its partitions are restored, and it does not drain; ?verbose tells of each partition and model
//	/metrics  Prometheus, OpenMetrics on request
type admin struct {
	listener net.Listener
	server   *http.Server
}

// health is what the probes ask of the consumer, and of the models.
type health interface {
	Status() consumer.Status
}

type models interface {
	Status() []llm.ModelStatus
}

// verbose is what /readyz?verbose tells. A model that is down does not make the worker unready: it takes the turns of other agents,
// and no other worker would do better.
type verbose struct {
	consumer.Status

	Models []llm.ModelStatus `json:"models,omitempty"`
}

const adminTimeout = 5 * time.Second

func listenAdmin(ctx context.Context, addr string, h health, m models, t *Telemetry) (*admin, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for probes and metrics (LATHE_ADMIN_ADDR): %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		s := h.Status()
		answerProbe(w, s.Live, s.LiveReason)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answerReady(w, r, verbose{h.Status(), m.Status()}) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return &admin{listener: l, server: &http.Server{Handler: mux, ReadHeaderTimeout: adminTimeout}}, nil
}

func (a *admin) addr() string { return a.listener.Addr().String() }

// closeTimeout is how long answers under way may take at the end.
const closeTimeout = time.Second

// serve serves until ctx ends. Whoever still has a connection open then does not hold the worker up, and is no fault of it.
func (a *admin) serve(ctx context.Context) error {
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err := a.server.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = a.server.Close()
		}
		stopped <- err
	})
	defer stop()
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes and metrics: %w", err)
	}
	return <-stopped
}

func answerProbe(w http.ResponseWriter, ok bool, reason string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, reason) // When the client has gone there is nobody to tell.
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

func answerReady(w http.ResponseWriter, r *http.Request, s verbose) {
	if !r.URL.Query().Has("verbose") {
		answerProbe(w, s.Ready, s.ReadyReason)
		return
	}
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		http.Error(w, "the status cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !s.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n')) // When the client has gone there is nobody to tell.
}
