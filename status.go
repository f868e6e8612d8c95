package jetpull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

// Errors that calls return, for use with [errors.Is]. If nats.go has an error for the same condition, which the comment
// then names, the error also matches that. So code that checks for errors of nats.go continues to work.
var (
	// ErrTimeout says that the deadline of a call passed before a message arrived, or that its last pull expired, which is
	// 100 ms earlier (see [MaxWait]). The text says which, and when. If the call ended by the deadline of its context, the
	// error matches [context.DeadlineExceeded] too. Also matches [nats.ErrTimeout].
	ErrTimeout error = &sentinel{"timeout", []error{nats.ErrTimeout}}
	// ErrNoMessages says that a call with NoWait found nothing to deliver. Also matches [jetstream.ErrNoMessages].
	ErrNoMessages error = &sentinel{"no messages", []error{jetstream.ErrNoMessages}}
	// ErrNoResponders says that no server answers for the consumer (status 503): it does not exist, has no
	// leader, or JetStream is down. Also matches [nats.ErrNoResponders].
	ErrNoResponders error = &sentinel{"no responders", []error{nats.ErrNoResponders}}
	// ErrConsumerDeleted says that the consumer, or its stream, is gone. Also matches [jetstream.ErrConsumerDeleted] and [nats.ErrConsumerDeleted].
	ErrConsumerDeleted error = &sentinel{"consumer deleted", []error{jetstream.ErrConsumerDeleted, nats.ErrConsumerDeleted}}
	// ErrNotPull says that the consumer is a push consumer. Also matches [jetstream.ErrNotPullConsumer].
	ErrNotPull error = &sentinel{"not a pull consumer", []error{jetstream.ErrNotPullConsumer, nats.ErrPullSubscribeToPushConsumer}}
	// ErrBadRequest says that the server refused the terms of a pull (status 400 and 412). Also matches [jetstream.ErrBadRequest].
	ErrBadRequest error = &sentinel{"bad request", []error{jetstream.ErrBadRequest}}
	// ErrLimitExceeded says that a pull is over the consumer's MaxRequestBatch, MaxRequestExpires or MaxRequestMaxBytes.
	ErrLimitExceeded error = &sentinel{"consumer limit exceeded", nil}
	// ErrMaxWaiting says that the consumer holds as many pulls as its MaxWaiting allows.
	ErrMaxWaiting error = &sentinel{"too many waiting pulls", nil}
	// ErrMaxBytes says that the next message is larger than MaxBytes. Also matches [jetstream.ErrMaxBytesExceeded].
	ErrMaxBytes error = &sentinel{"message exceeds max bytes", []error{jetstream.ErrMaxBytesExceeded}}
	// ErrLeadershipChanged says that a new leader took over the consumer and
	// forgot its pulls. Also matches [jetstream.ErrConsumerLeadershipChanged].
	ErrLeadershipChanged error = &sentinel{"leadership changed", []error{jetstream.ErrConsumerLeadershipChanged, nats.ErrConsumerLeadershipChanged}}
	// ErrServerShutdown says that the server that led the consumer is going down. Also matches [jetstream.ErrServerShutdown].
	ErrServerShutdown error = &sentinel{"server shutdown", []error{jetstream.ErrServerShutdown}}
	// ErrInvalidOption says that an option or argument cannot be used; the error names it. Also matches [jetstream.ErrInvalidOption].
	ErrInvalidOption error = &sentinel{"invalid option", []error{jetstream.ErrInvalidOption}}
	// ErrPayload says that [HandleJSON] could not decode the payload of a message.
	ErrPayload error = &sentinel{"bad payload", []error{worker.ErrFinal}}
	// ErrCancelled is the cause with which a handler's context ends if its message was cancelled by request: see [Named].
	ErrCancelled error = &sentinel{"cancelled by request", nil}
	// ErrClosed says that the Subscription or its connection is closed. For a closed connection the error matches [nats.ErrConnectionClosed] too,
	// and for one that drains [nats.ErrConnectionDraining].
	ErrClosed error = &sentinel{"closed", nil}
	// ErrDrainTimeout says that handlers still ran when DrainTimeout had passed, or that messages at their
	// last delivery had not been handled. Also matches [nats.ErrDrainTimeout].
	ErrDrainTimeout error = &sentinel{"drain timeout", []error{nats.ErrDrainTimeout}}
)

// sentinel is an error that also matches errors of nats.go.
type sentinel struct {
	text string
	also []error
}

func (s *sentinel) Error() string { return "jetpull: " + s.text }

func (s *sentinel) Is(target error) bool { return slices.Contains(s.also, target) }

// StatusError is a status frame of the server that ended a call. It matches the sentinel of its condition with [errors.Is], by
// Code and Description.
type StatusError struct {
	// Code is the status code, such as 409.
	Code int
	// Description is the server's text, such as "Consumer Deleted".
	Description string
	// Subject is the API subject of the pull that the status answers.
	Subject string
}

// Error returns the status, its subject and what the caller can do about it.
func (e *StatusError) Error() string {
	is := e.Unwrap()
	text := fmt.Sprintf("jetpull: status %d %s", e.Code, e.Description)
	if e.Description == "" && is != nil {
		text += strings.TrimPrefix(is.Error(), "jetpull: ")
	}
	if e.Subject != "" {
		text += " on " + e.Subject
	}
	if hint := hints[is]; hint != "" {
		text += ": " + hint
	}
	return text
}

// Unwrap returns the sentinel of the condition, or nil if the status does not end a call.
func (e *StatusError) Unwrap() error { return sentinels[wire.ConditionOf(e.Code, e.Description)] }

// hints say what the caller can do about a condition.
var hints = map[error]string{
	ErrLimitExceeded: "ask for less, or raise the limit in the consumer's configuration",
	ErrMaxBytes:      "raise MaxBytes to at least the size of the next message",
	ErrMaxWaiting:    "raise the consumer's MaxWaiting or run fewer clients",
	ErrNotPull:       "create the consumer without a DeliverSubject",
}

// sentinels are the errors for the conditions of status frames. An unknown status of a
// newer server keeps its text, and counts as a time-out.
var sentinels = map[wire.Condition]error{
	wire.NoMessages: ErrNoMessages, wire.RequestsPending: ErrNoMessages, wire.BatchCompleted: ErrNoMessages,
	wire.Expired: ErrTimeout, wire.InterestExpired: ErrTimeout, wire.OtherStatus: ErrTimeout,
	wire.MaxBytes: ErrMaxBytes, wire.LimitExceeded: ErrLimitExceeded, wire.MaxWaiting: ErrMaxWaiting,
	wire.ConsumerDeleted: ErrConsumerDeleted, wire.PushConsumer: ErrNotPull,
	wire.LeadershipChange: ErrLeadershipChanged, wire.ServerShutdown: ErrServerShutdown,
	wire.BadRequest: ErrBadRequest, wire.PinMismatch: jetstream.ErrPinIDMismatch, wire.NoResponders: ErrNoResponders,
}

// public converts an error of the pull engine to the error of a call with ctx.
func (s *Subscription) public(ctx context.Context, err error) error {
	switch e := err.(type) { //nolint:errorlint // the engine does not wrap its own
	case *pull.Timeout:
		cause := s.public(context.Background(), e.Cause)
		if ctx.Err() != nil {
			return contextError(ctx, cause)
		}
		return timeoutError(cause)
	case *pull.Refused:
		return &StatusError{e.Status.Code, e.Status.Description, wire.ConsumerSubject(apiPrefix(s.js), "MSG.NEXT", s.stream, s.consumer)}
	}
	if err == pull.ErrEmpty { //nolint:errorlint // the engine does not wrap its own
		return ErrNoMessages
	}
	return err
}

// timeoutError returns ErrTimeout with the last problem before it.
func timeoutError(cause error) error {
	if cause == nil {
		return ErrTimeout
	}
	return fmt.Errorf("%w: last problem: %w", ErrTimeout, cause)
}

// contextError returns the error of a call whose context has ended.
func contextError(ctx context.Context, cause error) error {
	err := context.Cause(ctx)
	if !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", timeoutError(cause), err)
	}
	return fmt.Errorf("jetpull: %w", err)
}

func (s *Subscription) wrapError(what string, err error) error {
	return fmt.Errorf("jetpull: %s from consumer %q on stream %q: %w", what, s.consumer, s.stream, closedError(err))
}

// requestError wraps the error of a request to subject, which was sent at begun. before is the connection's last error before that. The result says
// whether there was a connection.
func requestError(nc *nats.Conn, before error, begun time.Time, what, subject string, err error) error {
	refused := transport.Refusal(nc, before, subject)
	unanswered := errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
	if unanswered && !nc.IsConnected() && !nc.IsClosed() {
		err = fmt.Errorf("not connected to %s, since %s or longer; check that a server runs there and can be reached: %w",
			strings.Join(nc.Servers(), ", "), begun.Format(time.TimeOnly), err) // without passwords
	}
	switch {
	case refused != nil:
		return fmt.Errorf("jetpull: %s: %w", what, refused)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("jetpull: %s: nobody answers on %s: %w", what, subject, ErrNoResponders)
	case unanswered:
		return fmt.Errorf("jetpull: %s: no answer on %s: %w: %w", what, subject, ErrTimeout, err)
	}
	return fmt.Errorf("jetpull: %s: %s: %w", what, subject, closedError(err))
}

// closedError adds ErrClosed to nats.go's error for a closed connection.
func closedError(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}
