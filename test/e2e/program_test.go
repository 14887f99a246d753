package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/lathe-run/lathe/internal/app"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

// world is what the tools act on: a ledger on disk, which tells what really happened whatever the events say.
type world struct {
	dir    string
	ledger *os.File
}

func openWorld(dir string) (*world, error) {
	if dir == "" { // Commands that run no tool.
		return &world{}, nil
	}
	f, err := os.OpenFile(filepath.Join(dir, "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return &world{dir: dir, ledger: f}, nil
}

// note writes one line in one write and makes it durable, before whatever it tells of goes on.
func (w *world) note(what, tool, key string) error {
	_, err := fmt.Fprintf(w.ledger, "%d %d %s %s %s\n", time.Now().UnixNano(), os.Getpid(), what, tool, key)
	if err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	return w.ledger.Sync()
}

// arguments is what every tool takes: a number, which means what the tool makes of it.
type arguments struct {
	N int `json:"n" jsonschema:"a number"`
}

type answer struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

type toolBody func(c *tools.Context, w *world, in arguments) error

// tool notes when a call begins and when it has ended.
func tool(name string, opts tools.Options, body toolBody) tools.Tool {
	opts.Description = "A tool of the tests."
	return tools.Define(name, func(c *tools.Context, in arguments) (answer, error) {
		w := tools.From[*world](c)
		if err := w.note("begin", name, c.IdempotencyKey()); err != nil {
			return answer{}, tools.NotExecuted(err)
		}
		if err := body(c, w, in); err != nil {
			return answer{}, err
		}
		return answer{c.IdempotencyKey(), in.N}, w.note("end", name, c.IdempotencyKey())
	}, opts)
}

func instant(*tools.Context, *world, arguments) error { return nil }

// slow takes n milliseconds.
func slow(c *tools.Context, _ *world, in arguments) error {
	timer := time.NewTimer(time.Duration(in.N) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.Done():
		return c.Err()
	}
}

// held returns when the test makes the file release-<turn>.
func held(c *tools.Context, w *world, _ arguments) error {
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

// die waits as held does and takes the worker with it.
func die(c *tools.Context, w *world, in arguments) error {
	if err := held(c, w, in); err != nil {
		return err
	}
	signalSelf(syscall.SIGKILL)
	return nil
}

func broken(*tools.Context, *world, arguments) error { return errors.New("it is broken") }

// program is the worker's own part. The approve tools are gated, each in another form; no agent of the plain manifest has one.
func program(w *world) app.Program {
	read := tools.Options{Effect: schemas.EffectRead}
	write := tools.Options{Effect: schemas.EffectWrite}
	again := tools.Options{Effect: schemas.EffectWrite, Idempotency: schemas.SafeToRetry}
	gated := func(gate any, timeout time.Duration) tools.Options {
		return tools.Options{Effect: schemas.EffectWrite, RequiresApproval: gate, ApprovalTimeout: timeout}
	}
	return app.Program{Version: "e2e", Deps: w, Tools: []tools.Tool{
		tool("look", read, instant),
		tool("slow", read, slow),
		tool("hold_read", read, held),
		tool("broken", read, broken),
		tool("die_read", read, die),
		tool("die_write", again, die),
		tool("pay", write, instant),
		tool("hold", write, held),
		tool("save", again, instant),
		tool("deploy", tools.Options{Effect: schemas.EffectHost}, instant),
		tool("approve_always", gated(true, 0), instant),
		tool("approve_when", gated("args.n > 100", 0), instant),
		tool("approve_func", gated(func(arguments) bool { return false }, 0), instant),
		tool("approve_timeout", gated(nil, time.Minute), instant),
	}}
}

// onlyReads says which tools change nothing.
func onlyReads(tool string) bool {
	return slices.Contains([]string{"look", "slow", "hold_read", "broken", "die_read"}, tool)
}

// mayRunAgain says of which tools a call of unknown outcome runs again.
func mayRunAgain(tool string) bool { return tool == "save" || tool == "die_write" || onlyReads(tool) }
