package llm

import (
	"context"
	"maps"
	"slices"
	"time"
)

// ModelStatus is how a model does.
type ModelStatus struct {
	Model    string `json:"model"`
	Provider string `json:"provider"`
	// Down says that its requests fail and are held back, Since when, Cause why.
	Down  bool       `json:"down"`
	Since *time.Time `json:"since,omitempty"`
	Cause string     `json:"cause,omitempty"`
	// NextProbe is when it is asked again; nil while it is.
	NextProbe *time.Time `json:"next_probe,omitempty"`
	// Waiting is how many turns wait for it, begun or not.
	Waiting int64 `json:"waiting"`
}

// Status returns how the models do that can be down, by name.
func (r *Router) Status() []ModelStatus {
	var out []ModelStatus
	for _, name := range slices.Sorted(maps.Keys(r.models)) {
		if b := r.models[name].breaker; b != nil {
			out = append(out, b.status())
		}
	}
	return out
}

func (b *breaker) status() ModelStatus {
	s := ModelStatus{Model: b.model, Provider: b.provider, Waiting: b.waiting.Load()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.open {
		return s
	}
	since, next := b.mu.since.UTC(), b.mu.next.UTC()
	s.Down, s.Since, s.Cause = true, &since, b.mu.cause
	if !b.mu.probing {
		s.NextProbe = &next
	}
	return s
}

// Down reports whether a model is down, so that Admit would wait.
func (r *Router) Down(model string) bool {
	m, ok := r.models[model]
	return ok && m.breaker.isOpen()
}

// Admit returns when a turn of the model may begin: at once, unless the model is down. It returns the cause of ctx, or ErrDraining
// when draining was closed first.
func (r *Router) Admit(ctx context.Context, model string, draining <-chan struct{}) error {
	m, ok := r.models[model]
	if !ok {
		return nil // Who asks it is told so.
	}
	return m.breaker.admitTurn(ctx, draining)
}
