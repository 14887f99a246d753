// Package world is what the tools of test workers act on: a ledger on disk, which tells what really happened whatever the events
// say, and the tools that write it.
package world

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const ledgerName = "ledger"

// World is one process's access to the ledger. It is safe for concurrent use.
type World struct {
	dir    string
	ledger *os.File
}

// Open opens the world of a folder, which several processes may share. An empty dir gives one for commands that run no tool.
func Open(dir string) (*World, error) {
	if dir == "" {
		return &World{}, nil
	}
	f, err := os.OpenFile(filepath.Join(dir, ledgerName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the test names the folder
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return &World{dir: dir, ledger: f}, nil
}

// note writes one line in one write and makes it durable, before whatever it tells of goes on.
func (w *World) note(what, tool, key string) error {
	_, err := fmt.Fprintf(w.ledger, "%d %d %s %s %s\n", time.Now().UnixNano(), os.Getpid(), what, tool, key)
	if err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	if err := w.ledger.Sync(); err != nil {
		return fmt.Errorf("sync the ledger: %w", err)
	}
	return nil
}

// Entry is one line of the ledger.
type Entry struct {
	At  time.Time
	PID int
	// What is begin or end.
	What string
	Tool string
	// Key is the call's idempotency key.
	Key string
}

// ReadLedger reads what the tools did, in order. A ledger that nobody wrote yet is empty.
func ReadLedger(dir string) ([]Entry, error) {
	raw, err := os.ReadFile(filepath.Join(dir, ledgerName)) //nolint:gosec // the test names the folder
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	var out []Entry
	for line := range strings.Lines(string(raw)) {
		var e Entry
		var nanos int64
		if _, err := fmt.Sscanf(line, "%d %d %s %s %s\n", &nanos, &e.PID, &e.What, &e.Tool, &e.Key); err != nil {
			return nil, fmt.Errorf("read the ledger's line %q: %w", line, err)
		}
		e.At = time.Unix(0, nanos)
		out = append(out, e)
	}
	return out, nil
}

// Begun counts how often each call began, by idempotency key.
func Begun(ledger []Entry) map[string]int {
	out := make(map[string]int)
	for _, e := range ledger {
		if e.What == "begin" {
			out[e.Key]++
		}
	}
	return out
}
