package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// firstBackoff and maxBackoff bound the pause between two tries; the real one is random below, so that workers which
	// lost the registry at the same moment do not come back at the same moment.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
	// besideSchemaBytes is room for what an answer holds beside a schema.
	besideSchemaBytes = 64 << 10
)

// answerTooLargeError is an answer beyond the limit; trying again would bring it again.
type answerTooLargeError struct{ limit int64 }

func (e *answerTooLargeError) Error() string {
	return fmt.Sprintf("the answer of the schema registry has more than %d bytes", e.limit)
}

// registryTransport logs in, bounds every answer in time and size, and tries again until the context ends when the
// registry is down, busy or not to be reached.
type registryTransport struct {
	base    http.RoundTripper
	cfg     RegistryConfig
	maxBody int64
}

func newRegistryTransport(cfg RegistryConfig) (*registryTransport, error) {
	// A schema is a JSON string within JSON: each of its quotes has a backslash more.
	t := &registryTransport{base: cfg.Transport, cfg: cfg, maxBody: besideSchemaBytes + 2*int64(cfg.MaxSchemaBytes)}
	if t.base != nil {
		return t, nil
	}
	config, err := cfg.TLS.config()
	if err != nil {
		return nil, fmt.Errorf("reach the schema registry: %w", err)
	}
	t.base = &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
	}
	return t, nil
}

// RoundTrip sends a request until it is answered by more than "not now".
func (t *registryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 0; ; try++ {
		resp, err := t.once(req)
		if tooLarge, ok := errors.AsType[*answerTooLargeError](err); ok {
			return nil, tooLarge
		}
		if err == nil && !isBusy(resp.StatusCode) {
			return resp, nil
		}
		if !pause(req.Context(), backoff(try, resp)) {
			// The last answer says more than the end of the wait.
			return resp, err
		}
	}
}

// once sends a request and reads the whole answer.
func (t *registryTransport) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), t.cfg.Timeout, fmt.Errorf("no answer within %s", t.cfg.Timeout))
	defer cancel()
	try := req.Clone(ctx)
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, fmt.Errorf("read the request again: %w", err)
		}
		try.Body = body
	}
	if err := t.logIn(try); err != nil {
		return nil, err
	}
	resp, err := t.base.RoundTrip(try)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, t.maxBody+1))
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if int64(len(body)) > t.maxBody {
		return nil, &answerTooLargeError{limit: t.maxBody}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// logIn reads secrets from their files each time, so that changed ones need no restart.
func (t *registryTransport) logIn(req *http.Request) error {
	switch {
	case t.cfg.Username != "":
		password, err := secret(t.cfg.Password, t.cfg.PasswordPath)
		if err != nil {
			return err
		}
		req.SetBasicAuth(t.cfg.Username, password)
	case t.cfg.Token != "", t.cfg.TokenPath != "":
		token, err := secret(t.cfg.Token, t.cfg.TokenPath)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

func isBusy(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// backoff is how long to wait after a try: what the registry asks for, else a random time below a bound that doubles.
func backoff(try int, resp *http.Response) time.Duration {
	if resp != nil {
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 && seconds < 3600 {
			return time.Duration(seconds) * time.Second
		}
	}
	bound := min(maxBackoff, firstBackoff<<min(try, 10))
	return bound/2 + rand.N(bound/2) //nolint:gosec // spreading load needs no secrecy
}

// pause waits and reports whether there is time left for another try.
func pause(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
