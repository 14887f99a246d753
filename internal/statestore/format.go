package statestore

import (
	"errors"
	"fmt"
)

// Format is the version of stored values that this release works with: everything above the store sees values of this one alone.
const Format byte = 1

// ErrFormat says that a value was written by a release that this one cannot read.
var ErrFormat = errors.New("the value has an unknown format version")

// FormatError is an ErrFormat that says which release is needed.
type FormatError struct {
	Key             string
	Version, Newest byte
}

// Error says what was found and what to do.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%q is stored in format %d and this release reads up to %d: run a release that reads it; on newer releases "+
		"LATHE_STATE_FORMAT=%d keeps what they write readable here", e.Key, e.Version, e.Newest, e.Newest)
}

// Is makes it an ErrFormat.
func (e *FormatError) Is(target error) bool { return target == ErrFormat }

// Formats says which versions of stored values a release reads and writes: it reads Newest and the one before. Load and Store
// are nil as long as there is one version.
type Formats struct {
	// Newest is the latest version that the release knows; 0 is Format.
	Newest byte
	// Write is the version it writes; 0 is the one before Newest, which the release before can read.
	Write byte
	// Load makes a body of a version one of Format, Store the other way round. Both are pure.
	Load  func(version byte, key string, body []byte) ([]byte, error)
	Store func(version byte, key string, body []byte) []byte
}

func (f Formats) withDefaults() Formats {
	if f.Newest == 0 {
		f.Newest = Format
	}
	if f.Write == 0 {
		f.Write = f.oldest()
	}
	return f
}

func (f Formats) oldest() byte { return max(1, f.Newest-1) }

func (f Formats) reads(version byte) bool { return version >= f.oldest() && version <= f.Newest }

func (f Formats) validate() error {
	if !f.reads(f.Write) {
		return fmt.Errorf("LATHE_STATE_FORMAT is %d, but this release knows %d to %d", f.Write, f.oldest(), f.Newest)
	}
	return nil
}

// stored is a value as it is written.
func (f Formats) stored(key string, value []byte) []byte {
	if f.Write == Format || value == nil {
		return value
	}
	return append([]byte{f.Write}, f.Store(f.Write, key, value[1:])...)
}

// loaded is what was written as everything above the store has it.
func (f Formats) loaded(key string, value []byte) ([]byte, error) {
	if len(value) == 0 {
		return nil, fmt.Errorf("read %q: it is empty: %w", key, ErrFormat)
	}
	version := value[0]
	if !f.reads(version) {
		return nil, &FormatError{Key: key, Version: version, Newest: f.Newest}
	}
	if version == Format {
		return value, nil
	}
	body, err := f.Load(version, key, value[1:])
	if err != nil {
		return nil, fmt.Errorf("read %q, format %d: %w", key, version, err)
	}
	return append([]byte{Format}, body...), nil
}

// Body returns the value without its version byte.
func Body(value []byte) ([]byte, error) {
	if len(value) == 0 || value[0] != Format {
		return nil, ErrFormat
	}
	return value[1:], nil
}
