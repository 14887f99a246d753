//go:build !unix

package app

import (
	"context"
	"errors"
)

func lockFile(string) (func(context.Context) error, error) { return nil, errors.ErrUnsupported }
