package llm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxResponseBytes bounds what is read of an answer. It is far above what fits a record, so that a useful error comes from
// there and only a broken server meets this one.
const maxResponseBytes = 16 << 20

var errResponseTooLarge = fmt.Errorf("the response has more than %d bytes", maxResponseBytes)

// newClient returns the HTTP client of a model. A redirect is not followed: it would carry the conversation to a host that
// nobody configured.
func newClient(cfg Config, base http.RoundTripper) *http.Client {
	if base == nil {
		base = newTransport(cfg)
	}
	return &http.Client{
		Transport:     wholeBody{next: base},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newTransport(cfg Config) http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	// The default keeps two connections to a host and opens and closes the others for every request.
	t.MaxIdleConnsPerHost = cfg.Concurrency
	t.MaxIdleConns = cfg.Concurrency
	return t
}

// wholeBody reads the body before it hands out the response, so that a connection that breaks off in the middle is an error
// of the transport and not of the JSON.
type wholeBody struct {
	next http.RoundTripper
}

// RoundTrip sends req and reads the answer, up to maxResponseBytes.
func (t wholeBody) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes+1))
	err = errors.Join(err, res.Body.Close())
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if len(body) > maxResponseBytes {
		return nil, errResponseTooLarge
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// CloseIdleConnections lets go of the connections that wait for a request.
func (t wholeBody) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
