package domain

import (
	"errors"
	"fmt"

	"github.com/jetpull/jetpull/internal/stored"
)

// The errors of the domain. The text of those that the HTTP contract fixes is
// the text that a client sees.
var (
	// ErrNotFound says that a channel, producer, consumer, message or job does
	// not exist.
	ErrNotFound = stored.ErrNotFound
	// ErrConflict says that what was to be changed has changed meanwhile.
	ErrConflict = stored.ErrConflict
	// ErrDuplicateMessage says that the channel has a message with this ID.
	ErrDuplicateMessage = errors.New("duplicate message id for channel")
	// ErrDuplicateScheduled says that a message that was to be scheduled has the ID
	// of one that the channel has, scheduled or not.
	ErrDuplicateScheduled = errors.New("duplicate scheduled message id for channel")
	// ErrInvalidTransition says that the state machine has no such transition.
	ErrInvalidTransition = errors.New("invalid transition request")
	// ErrTimeoutWithInvalidState says that a timeout was given where none can be.
	ErrTimeoutWithInvalidState = errors.New("timeout provided with invalid state")
	// ErrClaimLost says that the claim whose token was sent has ended: it
	// expired, was completed, or another worker has the job.
	ErrClaimLost = errors.New("claim lost: it has ended or another worker holds the job")
	// ErrRetriesLeft says that a job is not dead for good.
	ErrRetriesLeft = errors.New("job is not dead or retry not exhausted")
	// ErrScheduleTooSoon says that a message was to be scheduled for a time
	// that is nearer than the minimum.
	ErrScheduleTooSoon = errors.New("scheduled time is too near")
	// ErrUnavailable says that the store did not answer, so that it is not
	// known whether a change was made.
	ErrUnavailable = stored.ErrUnavailable
	// ErrInvalid says that an argument cannot be used.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge says that a message, or what is to be kept in the registry, is larger than the store takes.
	ErrTooLarge = stored.ErrTooLarge
)

// ErrStoreFull says that there is no room for another message. Jobs can still be
// claimed, delivered and deleted, which makes room.
var ErrStoreFull = fmt.Errorf("%w: the store is full", ErrUnavailable)
