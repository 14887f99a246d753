package tools

import (
	"errors"
	"unicode/utf8"
)

const (
	maxReason   = 512
	maxSafeText = 2048
)

// ErrClosed is what Execute returns after Close: nothing was run.
var ErrClosed = errors.New("tools are closed")

// NotBegunError says that a call was not run at all, so that it may run elsewhere.
type NotBegunError struct{ Err error }

func (e *NotBegunError) Error() string { return "call not begun: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *NotBegunError) Unwrap() error { return e.Err }

// NotBegun marks the error for callers that do not know this package.
func (e *NotBegunError) NotBegun() bool { return true }

// FatalError says that trying again is useless.
type FatalError struct{ Err error }

func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// PoisonError says that these arguments can never work.
type PoisonError struct{ Err error }

func (e *PoisonError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PoisonError) Unwrap() error { return e.Err }

// RefusalError says that the tool will not do what was asked, and did nothing.
type RefusalError struct{ Reason string }

func (e *RefusalError) Error() string { return "refused: " + e.Reason }

// NotExecutedError says that nothing happened, although the call failed.
type NotExecutedError struct{ Err error }

func (e *NotExecutedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *NotExecutedError) Unwrap() error { return e.Err }

// SafeError is an error whose text the model may read.
type SafeError struct{ Err error }

func (e *SafeError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SafeError) Unwrap() error { return e.Err }

// Fatal marks err as one that trying again will not cure. Fatal(nil) is nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &FatalError{err}
}

// Poison marks err as caused by arguments that can never work. Poison(nil) is nil.
func Poison(err error) error {
	if err == nil {
		return nil
	}
	return &PoisonError{err}
}

// Refusal is the error of a tool that decides not to do what was asked: nothing happened. The model is given the reason, at most
// 512 characters of it.
func Refusal(reason string) error { return &RefusalError{reason} }

// NotExecuted marks err as a failure before anything happened, so that the outcome of a writing call is known. NotExecuted(nil)
// is nil.
func NotExecuted(err error) error {
	if err == nil {
		return nil
	}
	return &NotExecutedError{err}
}

// Safe marks the text of err as fit for the model; without it the model is only told that the tool failed. Safe(nil) is nil.
func Safe(err error) error {
	if err == nil {
		return nil
	}
	return &SafeError{err}
}

// cut returns at most n characters of s, as valid UTF-8.
func cut(s string, n int) string {
	i := 0
	for end := range s {
		if i == n {
			s = s[:end]
			break
		}
		i++
	}
	if !utf8.ValidString(s) {
		return string([]rune(s))
	}
	return s
}
