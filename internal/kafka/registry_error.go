package kafka

import (
	"context"
	"errors"
	"net/http"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/lathe-run/lathe/schemas"
)

// classify makes the error of a call what its caller acts on: does it exist, or is it only not to be had now?
func (r *Registry) classify(ctx context.Context, name string, err error) error {
	retryable := func(message string) error {
		return &schemas.Error{Class: schemas.ClassRetryable, Code: schemas.CodeSchemaUnknown, Message: message, Err: err}
	}
	answer, ok := errors.AsType[*sr.ResponseError](err)
	if !ok {
		if tooLarge, ok := errors.AsType[*answerTooLargeError](err); ok {
			return &schemas.Error{Code: schemas.CodeSchemaUnknown, Message: name + ": " + tooLarge.Error()}
		}
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return retryable("the schema registry cannot be reached")
	}
	switch {
	case isMissing(answer):
		return &schemas.Error{Code: schemas.CodeSchemaUnknown, Message: name + " does not exist in the schema registry", Err: err}
	case answer.StatusCode == http.StatusNotFound:
		return r.classifyBareNotFound(ctx, name, err)
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return retryable("the schema registry refuses the login")
	case answer.StatusCode == http.StatusConflict, answer.StatusCode == http.StatusUnprocessableEntity:
		return &schemas.Error{Code: schemas.CodeSchemaUnknown, Message: name + " is refused by the schema registry", Err: err}
	}
	// All else says something about the registry or the way to it, not about the schema.
	return retryable("the schema registry does not answer as it should")
}

// isMissing reports whether the registry itself says that what was asked for does not exist.
func isMissing(answer *sr.ResponseError) bool {
	switch answer.ErrorCode {
	case sr.ErrSubjectNotFound.Code, sr.ErrVersionNotFound.Code, sr.ErrSchemaNotFound.Code:
		return true
	}
	return false
}

// classifyBareNotFound tells a registry that says "not found" in its own way from a URL that leads to no registry: taking
// the second for the first would turn every record into a dead letter.
func (r *Registry) classifyBareNotFound(ctx context.Context, name string, err error) error {
	if _, typesErr := r.cl.SupportedTypes(ctx); typesErr != nil {
		return &schemas.Error{
			Class: schemas.ClassRetryable, Code: schemas.CodeSchemaUnknown, Err: errors.Join(err, typesErr),
			Message: "no schema registry answers under LATHE_SCHEMA_REGISTRY_URL",
		}
	}
	return &schemas.Error{Code: schemas.CodeSchemaUnknown, Message: name + " does not exist in the schema registry", Err: err}
}
