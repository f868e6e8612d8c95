package jetpull

import (
	"strings"

	"github.com/jetpull/jetpull/internal/wire"
)

// statusClass says what a status means for the pull it answers and for the
// callers that wait on that pull.
type statusClass uint8

const (
	classAlive    statusClass = iota // the pull lives on: an idle heartbeat
	classEmpty                       // nothing to deliver now: go on to the long pull
	classOver                        // the pull ran to its end
	classRetry                       // the server cannot serve it now: back off, pull again
	classPin                         // the pin id is stale: pull again without it
	classConfig                      // the pull's terms are refused: never retry
	classTerminal                    // the consumer is gone or cannot be pulled from
)

// status is a classified status frame.
type status struct {
	wire.Status
	class statusClass
	is    error
	// expired is set where the pull ran into its own expiry.
	expired bool
}

// classify maps a status frame to its meaning. The rules are those of
// nats-server 2.15 (consumer.go); the descriptions are compared by prefix and
// without case because some carry values.
func classify(s wire.Status) status {
	d := strings.ToLower(s.Description)
	switch s.Code {
	case 100:
		return status{Status: s, class: classAlive}
	case 400:
		return status{Status: s, class: classConfig, is: ErrBadRequest}
	case 404:
		return status{Status: s, class: classEmpty, is: ErrNoMessages}
	case 408:
		return timeoutStatus(s, d)
	case 409:
		return conflictStatus(s, d)
	case 412:
		return status{Status: s, class: classTerminal, is: ErrBadRequest}
	case 423:
		return status{Status: s, class: classPin, is: ErrPinMismatch}
	case 503:
		return status{Status: s, class: classRetry, is: ErrNoResponders}
	}
	// A status of a newer server: keep its text for the caller and go on
	// within the deadline.
	return status{Status: s, class: classRetry, is: ErrTimeout}
}

func timeoutStatus(s wire.Status, d string) status {
	switch {
	case strings.HasPrefix(d, "requests pending"):
		return status{Status: s, class: classEmpty, is: ErrNoMessages}
	case strings.HasPrefix(d, "interest expired"):
		return status{Status: s, class: classOver, is: ErrTimeout}
	}
	return status{Status: s, class: classOver, is: ErrTimeout, expired: true}
}

func conflictStatus(s wire.Status, d string) status {
	switch {
	case strings.HasPrefix(d, "batch completed"):
		return status{Status: s, class: classOver, is: ErrNoMessages}
	case strings.HasPrefix(d, "message size exceeds maxbytes"):
		return status{Status: s, class: classOver, is: ErrMaxBytes}
	case strings.HasPrefix(d, "exceeded maxrequest"):
		return status{Status: s, class: classConfig, is: ErrLimitExceeded}
	case strings.HasPrefix(d, "exceeded maxwaiting"):
		return status{Status: s, class: classRetry, is: ErrMaxWaiting}
	case strings.HasPrefix(d, "consumer deleted"):
		return status{Status: s, class: classTerminal, is: ErrConsumerDeleted}
	case strings.HasPrefix(d, "consumer is push based"):
		return status{Status: s, class: classTerminal, is: ErrNotPull}
	case strings.HasPrefix(d, "leadership change"):
		return status{Status: s, class: classRetry, is: ErrLeadershipChanged}
	case strings.HasPrefix(d, "server shutdown"):
		return status{Status: s, class: classRetry, is: ErrServerShutdown}
	}
	return status{Status: s, class: classRetry, is: ErrTimeout}
}

// err is the status as the caller sees it.
func (s status) err(subject string) error {
	return &StatusError{Code: s.Code, Description: s.Description, Subject: subject, is: s.is}
}
