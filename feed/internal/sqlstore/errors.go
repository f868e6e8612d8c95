package sqlstore

import (
	"errors"
	"fmt"
)

// The errors that package feed passes on; it says what they mean.
var (
	ErrNotFound   = errors.New("not found")
	ErrClosed     = errors.New("partition is sealed or complete")
	ErrGatePassed = errors.New("gate is passed")
	ErrDuplicate  = errors.New("duplicate ID")
	ErrNotDone    = errors.New("items are not complete")
	ErrConflict   = errors.New("conflict")
	ErrInvalid    = errors.New("invalid")
)

func invalid(name, format string, args ...any) error {
	return fmt.Errorf("feed: %w %s: %s", ErrInvalid, name, fmt.Sprintf(format, args...))
}
