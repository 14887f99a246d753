package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

const (
	// maxCachedSchemas and maxCachedBytes bound what is kept: ids come from records, so from outside.
	maxCachedSchemas = 1000
	maxCachedBytes   = 32 << 20
	// missingTTL is how long an id that does not exist is not asked for again: a producer may register it a moment after.
	missingTTL = 5 * time.Second
	// maxMissing bounds the ids that are known not to exist.
	maxMissing = 10_000
)

// schemaCache keeps schemas for good, those that do not exist for seconds, and lets many callers wait for one fetch.
type schemaCache struct {
	mu struct {
		sync.Mutex
		found   map[string]string
		bytes   int
		missing map[string]missingSchema
		flights map[string]*flight
	}
}

type missingSchema struct {
	err   *schemas.Error
	until time.Time
}

// flight is one fetch under way. text and err are written before done is closed.
type flight struct {
	name    string
	done    chan struct{}
	cancel  context.CancelFunc
	waiters int // under the cache's lock
	text    string
	err     error
}

func newSchemaCache() *schemaCache {
	c := &schemaCache{}
	c.mu.found = map[string]string{}
	c.mu.missing = map[string]missingSchema{}
	c.mu.flights = map[string]*flight{}
	return c
}

// get returns what is kept under a name or waits for its fetch, which goes on as long as anybody waits for it.
func (c *schemaCache) get(ctx context.Context, name string, fetch func(context.Context) (string, error)) (string, error) {
	f, text, err := c.join(ctx, name, fetch)
	if f == nil {
		return text, err
	}
	select {
	case <-f.done:
		return f.text, f.err
	case <-ctx.Done():
		c.leave(f)
		return "", &schemas.Error{
			Class: schemas.ClassRetryable, Code: schemas.CodeSchemaUnknown,
			Message: "the wait for the schema registry was broken off", Err: context.Cause(ctx),
		}
	}
}

// join returns what is known, or the flight to wait for.
func (c *schemaCache) join(
	ctx context.Context, name string, fetch func(context.Context) (string, error),
) (*flight, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text, ok := c.mu.found[name]; ok {
		return nil, text, nil
	}
	if missing, ok := c.mu.missing[name]; ok && time.Now().Before(missing.until) {
		return nil, "", missing.err
	}
	f, ok := c.mu.flights[name]
	if !ok {
		// The fetch is not only for the caller that came first: it ends when the last one has left.
		fetchCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{name: name, done: make(chan struct{}), cancel: cancel}
		c.mu.flights[name] = f
		go c.fly(fetchCtx, f, fetch)
	}
	f.waiters++
	return f, "", nil
}

// fly fetches, keeps and tells the waiters; its end is bound by the deadline of the fetch.
func (c *schemaCache) fly(ctx context.Context, f *flight, fetch func(context.Context) (string, error)) {
	defer close(f.done)
	defer f.cancel()
	f.text, f.err = fetch(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.landLocked(f)
	if f.err == nil {
		c.keepLocked(f.name, f.text)
		return
	}
	if e, ok := errors.AsType[*schemas.Error](f.err); ok && e.Class == schemas.ClassTerminal {
		c.missLocked(f.name, e)
	}
}

// leave gives up waiting; a fetch that nobody waits for is broken off, and the next caller starts another.
func (c *schemaCache) leave(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.waiters--
	if f.waiters > 0 {
		return
	}
	f.cancel()
	c.landLocked(f)
}

// landLocked takes a flight out, unless another has taken its place.
func (c *schemaCache) landLocked(f *flight) {
	if c.mu.flights[f.name] == f {
		delete(c.mu.flights, f.name)
	}
}

// keepLocked makes room by dropping any other schemas: which, matters little, they are one request away.
func (c *schemaCache) keepLocked(name, text string) {
	if _, ok := c.mu.found[name]; ok { // by a flight that everybody had left
		return
	}
	for old, oldText := range c.mu.found {
		if len(c.mu.found) < maxCachedSchemas && c.mu.bytes+len(text) <= maxCachedBytes {
			break
		}
		delete(c.mu.found, old)
		c.mu.bytes -= len(oldText)
	}
	c.mu.found[name] = text
	c.mu.bytes += len(text)
}

func (c *schemaCache) missLocked(name string, err *schemas.Error) {
	now := time.Now()
	if len(c.mu.missing) >= maxMissing {
		for old, missing := range c.mu.missing {
			if !now.Before(missing.until) {
				delete(c.mu.missing, old)
			}
		}
	}
	if len(c.mu.missing) < maxMissing {
		c.mu.missing[name] = missingSchema{err: err, until: now.Add(missingTTL)}
	}
}
