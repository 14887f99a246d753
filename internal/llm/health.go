package llm

import (
	"context"
	"errors"
	"net/http"

	"github.com/lathe-run/lathe/schemas"
)

// health is what a request tells of its model.
type health uint8

const (
	// unknown says nothing: we ended the request.
	unknown health = iota
	// answered is a response, or a refusal of this one request. To be told to slow down (429) is an answer too: requests wait for
	// that each by itself.
	answered
	// failing is what any other request would get as well: nobody there, a server error, a key or an account that is not accepted,
	// a model that does not exist.
	failing
)

// healthOf judges the error of a request; nil is an answer.
func healthOf(ctx context.Context, err error) health {
	if err == nil {
		return answered
	}
	if ctx.Err() != nil {
		return unknown
	}
	if e, ok := errors.AsType[*apiError](err); ok {
		return e.health()
	}
	if e, ok := errors.AsType[*schemas.Error](err); ok && e.Code == schemas.CodeModelUnavailable {
		return failing
	}
	return answered
}

func (e *apiError) health() health {
	if e.noCredit() {
		return failing
	}
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout:
		if !e.policy() {
			return failing
		}
	}
	if e.status >= http.StatusInternalServerError {
		return failing
	}
	return answered
}
