package jetpull

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/wire"
)

// statusTable has every status that nats-server 2.15 sends to a pull.
var statusTable = []struct {
	code    int
	desc    string
	class   statusClass
	is      error
	also    []error // of nats.go
	expired bool
}{
	{code: 100, desc: "Idle Heartbeat", class: classAlive},
	{code: 400, desc: "Bad Request - priority group missing", class: classConfig, is: ErrBadRequest, also: []error{jetstream.ErrBadRequest}},
	{code: 404, desc: "No Messages", class: classEmpty, is: ErrNoMessages, also: []error{jetstream.ErrNoMessages}},
	{code: 408, desc: "Request Timeout", class: classOver, is: ErrTimeout, also: []error{nats.ErrTimeout}, expired: true},
	{code: 408, desc: "Requests Pending", class: classEmpty, is: ErrNoMessages},
	{code: 408, desc: "Interest Expired", class: classOver, is: ErrTimeout},
	{code: 409, desc: "Batch Completed", class: classOver, is: ErrNoMessages},
	{code: 409, desc: "Message Size Exceeds MaxBytes", class: classOver, is: ErrMaxBytes, also: []error{jetstream.ErrMaxBytesExceeded}},
	{code: 409, desc: "Exceeded MaxRequestBatch of 10", class: classConfig, is: ErrLimitExceeded},
	{code: 409, desc: "Exceeded MaxRequestExpires of 1s", class: classConfig, is: ErrLimitExceeded},
	{code: 409, desc: "Exceeded MaxRequestMaxBytes of 100", class: classConfig, is: ErrLimitExceeded},
	{code: 409, desc: "Exceeded MaxWaiting", class: classRetry, is: ErrMaxWaiting},
	{code: 409, desc: "Consumer Deleted", class: classTerminal, is: ErrConsumerDeleted, also: []error{jetstream.ErrConsumerDeleted, nats.ErrConsumerDeleted}},
	{code: 409, desc: "Consumer is push based", class: classTerminal, is: ErrNotPull, also: []error{jetstream.ErrNotPullConsumer, nats.ErrPullSubscribeToPushConsumer}},
	{code: 409, desc: "Leadership Change", class: classRetry, is: ErrLeadershipChanged, also: []error{jetstream.ErrConsumerLeadershipChanged, nats.ErrConsumerLeadershipChanged}},
	{code: 409, desc: "Server Shutdown", class: classRetry, is: ErrServerShutdown, also: []error{jetstream.ErrServerShutdown}},
	{code: 412, desc: "Required Api Level", class: classTerminal, is: ErrBadRequest},
	{code: 423, desc: "Nats-Pin-Id mismatch", class: classPin, is: ErrPinMismatch, also: []error{jetstream.ErrPinIDMismatch}},
	{code: 423, desc: "Nats-Wrong-Pin-Id", class: classPin, is: ErrPinMismatch},
	{code: 503, desc: "", class: classRetry, is: ErrNoResponders, also: []error{nats.ErrNoResponders}},
	// What is not known: worth another try within the deadline.
	{code: 409, desc: "Something Else", class: classRetry, is: ErrTimeout},
	{code: 499, desc: "Newer", class: classRetry, is: ErrTimeout},
	{code: 200, desc: "", class: classRetry, is: ErrTimeout},
	// Some versions of the server write a text in another case.
	{code: 409, desc: "consumer deleted", class: classTerminal, is: ErrConsumerDeleted},
	{code: 408, desc: "", class: classOver, is: ErrTimeout, expired: true},
}

func TestEveryStatus(t *testing.T) {
	for _, tt := range statusTable {
		t.Run(fmt.Sprint(tt.code, " ", tt.desc), func(t *testing.T) {
			s := classify(wire.Status{Code: tt.code, Description: tt.desc, PendingMsgs: 7})
			require.Equal(t, tt.class, s.class)
			require.Equal(t, tt.is, s.is)
			require.Equal(t, tt.expired, s.expired)
			require.EqualValues(t, 7, s.PendingMsgs, "the frame is kept")
			if s.class == classAlive {
				return
			}
			err := fmt.Errorf("wrapped: %w", s.err("$JS.API.CONSUMER.MSG.NEXT.S.C"))
			require.ErrorIs(t, err, tt.is)
			for _, also := range tt.also {
				require.ErrorIs(t, err, also)
			}
			status, ok := errors.AsType[*StatusError](err)
			require.True(t, ok)
			require.Equal(t, tt.code, status.Code)
			require.Equal(t, tt.desc, status.Description)
			require.Contains(t, err.Error(), fmt.Sprint(tt.code))
			require.Contains(t, err.Error(), "$JS.API.CONSUMER.MSG.NEXT.S.C")
			require.Contains(t, err.Error(), tt.desc)
		})
	}
}

func TestStatusErrorsSayWhatToDo(t *testing.T) {
	for is, hint := range map[error]string{
		ErrLimitExceeded: "raise the limit",
		ErrMaxBytes:      "raise MaxBytes",
		ErrMaxWaiting:    "MaxWaiting",
		ErrNotPull:       "DeliverSubject",
	} {
		require.Contains(t, (&StatusError{Code: 409, is: is}).Error(), hint)
	}
	require.Equal(t, "jetpull: status 503 no responders on a.b", (&StatusError{Code: 503, Subject: "a.b", is: ErrNoResponders}).Error())
}

// The sentinels stand for different conditions and must not match each other,
// nor each other's of nats.go.
func TestSentinelsAreDistinct(t *testing.T) {
	all := []error{
		ErrTimeout, ErrNoMessages, ErrNoResponders, ErrConsumerDeleted, ErrNotPull, ErrBadRequest, ErrLimitExceeded,
		ErrMaxWaiting, ErrMaxBytes, ErrPinMismatch, ErrLeadershipChanged, ErrServerShutdown, ErrInvalidOption, ErrClosed, ErrDrainTimeout,
	}
	for i, a := range all {
		require.ErrorContains(t, a, "jetpull: ")
		for j, b := range all {
			require.Equal(t, i == j, errors.Is(fmt.Errorf("x: %w", a), b), "%v is %v", a, b)
			known, ok := errors.AsType[*sentinel](b)
			require.True(t, ok)
			for _, also := range known.also {
				require.Equal(t, i == j, errors.Is(a, also), "%v is %v", a, also)
			}
		}
	}
}

func TestContextErrors(t *testing.T) {
	cause := errors.New("the reason")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, contextError(canceled, nil), context.Canceled)
	require.NotErrorIs(t, contextError(canceled, nil), ErrTimeout)

	caused, cancelCause := context.WithCancelCause(t.Context())
	cancelCause(cause)
	require.ErrorIs(t, contextError(caused, nil), context.Canceled)
	require.ErrorIs(t, contextError(caused, nil), cause)

	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	err := contextError(late, ErrLeadershipChanged)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, nats.ErrTimeout)
	require.ErrorIs(t, err, ErrLeadershipChanged)

	reasoned, cancel := context.WithTimeoutCause(t.Context(), 0, cause)
	defer cancel()
	err = contextError(reasoned, nil)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
