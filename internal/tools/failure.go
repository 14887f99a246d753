package tools

import (
	"errors"
	"fmt"

	"github.com/lathe-run/lathe/schemas"
)

// failure is what an error of a tool means.
type failure struct {
	code schemas.Code
	// message is for events and holds nothing of the tool's text; forModel is what the tool wants the model to read.
	message, forModel string
	// clean says that nothing happened, again that trying again may help.
	clean, again bool
	err          error
	stack        []byte
}

// classify says what an error of a tool means. An error may wrap several of the marks: what says that nothing happened counts
// beside what says that trying again is useless.
func classify(err error) failure {
	f := failure{code: schemas.CodeToolError, message: "the tool failed", again: true, err: err}
	if _, ok := errors.AsType[*NotExecutedError](err); ok {
		f.code, f.message, f.clean = schemas.CodeNotExecuted, "the tool failed before anything happened", true
	}
	if safe, ok := errors.AsType[*SafeError](err); ok {
		f.forModel = cut(safe.Error(), maxSafeText)
	}
	if errors.Is(err, errTimeout) {
		f.code = schemas.CodeTimeout
	}
	if _, ok := errors.AsType[*FatalError](err); ok {
		f.code, f.message, f.again = schemas.CodeToolFatal, "the tool failed, and would fail again", false
	}
	if _, ok := errors.AsType[*PoisonError](err); ok {
		f.code, f.message, f.again = schemas.CodeToolPoison, "the tool cannot work with these arguments", false
	}
	if refusal, ok := errors.AsType[*RefusalError](err); ok {
		f.code, f.message, f.again, f.clean = schemas.CodeToolRefused, "the tool refused, nothing happened", false, true
		f.forModel = cut(refusal.Reason, maxReason)
	}
	if panicked, ok := errors.AsType[*panicError](err); ok {
		f.code, f.message, f.stack = schemas.CodeToolPanic, "the tool broke down", panicked.stack
	}
	if _, ok := errors.AsType[*argumentsError](err); ok {
		f.code, f.message, f.again, f.clean = schemas.CodeInvalidArguments, "the arguments do not fit the tool's types", false, true
	}
	if output, ok := errors.AsType[*outputError](err); ok {
		f.code, f.message, f.again = schemas.CodeInvalidOutput, "the result of tool "+output.tool+" has no JSON form", false
	}
	return f
}

func tooLarge(what string, got, limit int) string {
	return fmt.Sprintf("%s %d bytes, the limit is %d", what, got, limit)
}
