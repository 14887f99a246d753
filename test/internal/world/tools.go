package world

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
	"github.com/lathe-run/lathe/test/internal/trap"
)

// Arguments is what every tool takes: a number, which means what the tool makes of it.
type Arguments struct {
	N int `json:"n" jsonschema:"a number"`
}

// Answer is what every tool gives.
type Answer struct {
	Key string `json:"key"`
	N   int    `json:"n"`
	// Bulk makes the answer of a bulk tool n bytes larger.
	Bulk string `json:"bulk,omitempty"`
}

// Body is what a tool does between its beginning and its end.
type Body func(c *tools.Context, w *World, in Arguments) error

// Tool notes when a call begins and when it has ended. Its program's Deps are a *World.
func Tool(name string, opts tools.Options, body Body) tools.Tool {
	opts.Description = "A tool of the tests."
	return tools.Define(name, func(c *tools.Context, in Arguments) (Answer, error) {
		w := tools.From[*World](c)
		if err := w.note("begin", name, c.IdempotencyKey()); err != nil {
			return Answer{}, tools.NotExecuted(err)
		}
		if err := body(c, w, in); err != nil {
			return Answer{}, err
		}
		out := Answer{Key: c.IdempotencyKey(), N: in.N}
		if strings.HasPrefix(name, "bulk_") {
			out.Bulk = Noise(in.N)
		}
		return out, w.note("end", name, c.IdempotencyKey())
	}, opts)
}

// Instant does nothing more.
func Instant(*tools.Context, *World, Arguments) error { return nil }

// Noise is text that does not compress well.
func Noise(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	out := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // It is no secret, and must be the same each time.
	for i := range out {
		out[i] = letters[r.IntN(len(letters))]
	}
	return string(out)
}

// Slow takes n milliseconds.
func Slow(c *tools.Context, _ *World, in Arguments) error {
	timer := time.NewTimer(time.Duration(in.N) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.Done():
		return c.Err()
	}
}

// Held returns when the file release-<turn> is there.
func Held(c *tools.Context, w *World, _ Arguments) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(w.dir, "release-"+c.TurnID())); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.Done():
			return c.Err()
		}
	}
}

// Die waits as Held does and takes the worker with it.
func Die(c *tools.Context, w *World, in Arguments) error {
	if err := Held(c, w, in); err != nil {
		return err
	}
	trap.SignalSelf(syscall.SIGKILL)
	return nil
}

// Broken fails.
func Broken(*tools.Context, *World, Arguments) error { return errors.New("it is broken") }

// The options of the tools.
func reads() tools.Options { return tools.Options{Effect: schemas.EffectRead} }

func writes() tools.Options { return tools.Options{Effect: schemas.EffectWrite} }

func writesAgain() tools.Options {
	return tools.Options{Effect: schemas.EffectWrite, Idempotency: schemas.SafeToRetry}
}

// Tools are one of each kind: that read, that may run at most once, and that are safe to retry; instant, slow, held and broken.
func Tools() []tools.Tool {
	return []tools.Tool{
		Tool("look", reads(), Instant),
		Tool("slow", reads(), Slow),
		Tool("hold_read", reads(), Held),
		Tool("broken", reads(), Broken),
		Tool("die_read", reads(), Die),
		Tool("die_write", writesAgain(), Die),
		Tool("pay", writes(), Instant),
		Tool("pay_slowly", writes(), Slow),
		Tool("hold", writes(), Held),
		Tool("save", writesAgain(), Instant),
		Tool("save_slowly", writesAgain(), Slow),
		Tool("bulk_read", reads(), Instant),
		Tool("bulk_pay", writes(), Instant),
		Tool("deploy", tools.Options{Effect: schemas.EffectHost}, Instant),
	}
}

// OnlyReads says which tools change nothing.
func OnlyReads(tool string) bool {
	return slices.Contains([]string{"look", "slow", "hold_read", "broken", "die_read", "bulk_read"}, tool)
}

// MayRunAgain says of which tools a call of unknown outcome runs again.
func MayRunAgain(tool string) bool {
	return slices.Contains([]string{"save", "save_slowly", "die_write"}, tool) || OnlyReads(tool)
}
