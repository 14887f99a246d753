package schemas

import (
	"errors"
	"fmt"
	"time"
)

// Class says what a caller does about an error; it never has to read the text.
type Class uint8

const (
	// ClassTerminal errors end what they are about: the record, the call or the turn.
	ClassTerminal Class = iota
	// ClassRetryable errors may pass: the same thing is tried again later, nothing is given up.
	ClassRetryable
)

// String returns the class's name, for logs.
func (c Class) String() string {
	switch c {
	case ClassTerminal:
		return "terminal"
	case ClassRetryable:
		return "retryable"
	}
	return "unknown"
}

// Error is an error that can end in an event or a dead letter. Message is safe to publish: it never holds the payload.
type Error struct {
	Class   Class
	Code    Code
	Message string
	// Path is the JSON path of what was wrong, empty when it is the whole.
	Path string
	// RetryAfter is how long the other side asked to wait, 0 when it did not say.
	RetryAfter time.Duration
	// Err is the cause, for logs; it may hold more than may be published.
	Err error
}

// Errorf makes a terminal error of a code. The message is published, so it must hold no payload.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns code, path, message and cause.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Path != "" {
		s += " at " + e.Path
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Detail is the publishable text: the path and the message.
func (e *Error) Detail() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// IsRetryable reports whether err is, or wraps, an Error of class retryable.
func IsRetryable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Class == ClassRetryable
}
