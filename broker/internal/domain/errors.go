package domain

import (
	"errors"
	"fmt"

	"github.com/jetpull/jetpull/internal/stored"
)

// The errors of the domain. Clients see the texts of those in the HTTP contract.
var (
	// ErrNotFound reports that a channel, producer, consumer, message or job does not exist.
	ErrNotFound = stored.ErrNotFound
	// ErrConflict reports that the object has changed since it was read.
	ErrConflict = stored.ErrConflict
	// ErrDuplicateMessage reports that the channel already has a message with this ID.
	ErrDuplicateMessage = errors.New("duplicate message id for channel")
	// ErrDuplicateScheduled reports that the channel already has a message, scheduled or not, with the ID of the message to schedule.
	ErrDuplicateScheduled = errors.New("duplicate scheduled message id for channel")
	// ErrInvalidTransition reports that the state machine has no such transition.
	ErrInvalidTransition = errors.New("invalid transition request")
	// ErrTimeoutWithInvalidState reports that a timeout was given for a state that has none.
	ErrTimeoutWithInvalidState = errors.New("timeout provided with invalid state")
	// ErrClaimLost reports that the claim has ended: it expired, was completed, or another worker has the job.
	ErrClaimLost = errors.New("claim lost: it has ended or another worker holds the job")
	// ErrRetriesLeft reports that a job is not dead, or still has retries.
	ErrRetriesLeft = errors.New("job is not dead or retry not exhausted")
	// ErrScheduleTooSoon reports that the scheduled time is before the earliest allowed one.
	ErrScheduleTooSoon = errors.New("scheduled time is too near")
	// ErrUnavailable reports that the store did not answer. The change may have been made.
	ErrUnavailable = stored.ErrUnavailable
	// ErrInvalid reports an invalid argument.
	ErrInvalid = errors.New("invalid")
	// ErrWaiting reports that a channel cannot be deleted because it has consumers or pending schedules.
	ErrWaiting = errors.New("the channel is in use")
	// ErrTooLarge reports that a message or an object of the registry is larger than the store accepts.
	ErrTooLarge = stored.ErrTooLarge
)

// ErrStoreFull reports that there is no space for another message. Jobs can still be claimed, delivered and deleted, which frees space.
var ErrStoreFull = fmt.Errorf("%w: the store is full", ErrUnavailable)
