package consumer

import (
	"context"
	"log/slog"
	"time"
)

// source is what the brokers refuse.
type source string

const (
	sourceGroup   source = "group"
	sourceFetch   source = "fetch"
	sourceRestore source = "restore"
	sourceCycle   source = "cycle"
)

// trouble is something that the brokers refuse and a person can change while the worker runs: rights, settings. The worker is not
// ready until it is over, and gives up when it takes too long.
type trouble struct {
	err error
	// raised is when it was last heard of, until when it is too long.
	raised, until time.Time
}

// troubleSilence is after what time without another refusal trouble counts as over, when nothing else shows that: clients repeat
// what they are refused with their metadata, every 5 minutes at the latest.
const troubleSilence = 6 * time.Minute

// trouble notes a refusal.
func (w *Worker) trouble(ctx context.Context, from source, err error) {
	w.troubleFor(ctx, from, err, w.cfg.RefusalGrace)
}

func (w *Worker) troubleFor(ctx context.Context, from source, err error, grace time.Duration) {
	w.mu.Lock()
	t := w.mu.troubles[from]
	first := t == nil
	if first {
		t = &trouble{until: time.Now().Add(grace)}
		w.mu.troubles[from] = t
	}
	t.err, t.raised = err, time.Now()
	w.mu.Unlock()
	if first {
		w.log.ErrorContext(ctx, "brokers refuse the worker", slog.String("source", string(from)), slog.Any("error", err))
	}
}

// calm notes that the brokers take what they refused.
func (w *Worker) calm(from source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.troubles, from)
}

// troubled returns the trouble that has the least time left, if there is any.
func (w *Worker) troubled() *trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	var worst *trouble
	for from, t := range w.mu.troubles {
		switch {
		case time.Since(t.raised) > troubleSilence:
			delete(w.mu.troubles, from)
		case worst == nil || t.until.Before(worst.until):
			c := *t
			worst = &c
		}
	}
	return worst
}
