package torture

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/lathe-run/lathe/test/torture/worker"
)

// mayPanic is for how long after an attack on its disk Pebble may panic: it finds some damage late.
const mayPanic = 90 * time.Second

// corruptAttack spoils a file of a worker that is down.
func corruptAttack() Attack {
	return Attack{Name: "corrupt", Run: func(_ context.Context, b *Bed, rng *rand.Rand) error {
		m, clean := b.Fleet.Pick(rng), rng.IntN(2) == 0
		which, how, where := rng.Float64(), rng.IntN(3), rng.Float64()
		m.Spoil(mayPanic)
		if clean {
			m.Stop()
		} else {
			m.Kill()
		}
		what, err := spoil(m.Data(), which, how, where)
		if err != nil {
			return err
		}
		b.Say("%s, stopped clean: %v, %s", m.Name, clean, what)
		return m.Start()
	}}
}

// spoil flips some bytes of one file, cuts it, or deletes it. Which and where are between 0 and 1.
func spoil(dir string, which float64, how int, where float64) (string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "LOCK" {
			return err
		}
		if info, err := d.Info(); err == nil && info.Size() > 0 { // Markers are empty.
			files = append(files, path)
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("look for files to spoil: %w", err)
	}
	if len(files) == 0 {
		return "has no files to spoil", nil
	}
	path := files[int(which*float64(len(files)))]
	raw, err := os.ReadFile(path) //nolint:gosec // a file of the test's own worker
	if err != nil {
		return "", fmt.Errorf("read a file to spoil: %w", err)
	}
	at := int(where * float64(len(raw)))
	what := fmt.Sprintf("of %s, %d bytes: ", filepath.Base(path), len(raw))
	switch how {
	case 0:
		for i := at; i < min(at+16, len(raw)); i++ {
			raw[i] ^= 0x5a
		}
		what += fmt.Sprintf("16 bytes from %d on are flipped", at)
	case 1:
		raw = raw[:at]
		what += fmt.Sprintf("cut to %d bytes", at)
	default:
		if err := os.Remove(path); err != nil {
			return "", fmt.Errorf("delete a file: %w", err)
		}
		return what + "deleted", nil
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil { //nolint:gosec // a file of the test's own worker
		return "", fmt.Errorf("spoil a file: %w", err)
	}
	return what, nil
}

// diskAttack leaves a worker without space on its disk for a while: every write of its state store gives ENOSPC, by the file
// system that the worker of the torture puts below Pebble. A real full disk would need privileges, and would hit the ledger too.
func diskAttack() Attack {
	return Attack{Name: "disk_full", Run: func(ctx context.Context, b *Bed, rng *rand.Rand) error {
		m, d := b.Fleet.Pick(rng), between(rng, 2*time.Second, 9*time.Second)
		b.Say("no space left on the disk of %s for %s", m.Name, d.Round(time.Millisecond))
		m.Spoil(d + 20*time.Second)
		if err := worker.SetFull(m.Switches(), true); err != nil {
			return err
		}
		if err := pause(ctx, d); err != nil {
			return err
		}
		return worker.SetFull(m.Switches(), false)
	}}
}
